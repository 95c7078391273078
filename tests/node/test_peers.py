"""Connections to peers: versions first, pipelined answers, and the truth at once when a connection breaks."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moldau.node.peers import Peers
from moldau.ports import Address, Unreachable
from moldau.protocol.api import ApiKey
from moldau.protocol.frames import encode_response, parse_request_header
from moldau.protocol.generated.wire.api_versions_response import ApiVersion, ApiVersionsResponse
from moldau.protocol.generated.wire.describe_cluster_request import DescribeClusterRequest
from moldau.protocol.generated.wire.describe_cluster_response import DescribeClusterResponse
from moldau.protocol.generated.wire.vote_request import VoteRequest

VERSIONS = ApiVersionsResponse(
    api_keys=[ApiVersion(ApiKey.API_VERSIONS, 0, 4), ApiVersion(ApiKey.DESCRIBE_CLUSTER, 0, 1)]
)


class Server:
    """Answers DescribeCluster with the number of the request, unless told otherwise."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int]] = []
        self.silent = False
        # Answers are sent in pieces of so many bytes, each for itself; None for as they are.
        self.piece: int | None = None
        self.connections: list[asyncio.StreamWriter] = []

    async def start(self) -> Address:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return Address("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = memoryview(await reader.readexactly(size))
                key, version, correlation_id, client_id, _ = parse_request_header(frame)
                assert client_id == "node-7"
                if key == ApiKey.API_VERSIONS:
                    writer.write(encode_response(key, version, correlation_id, VERSIONS))
                    continue
                self.requests.append((key, version))
                if not self.silent:
                    answer = DescribeClusterResponse(controller_id=len(self.requests))
                    await self._answer(writer, encode_response(key, version, correlation_id, answer))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        if self.piece is None:
            writer.write(answer)
            return
        for start in range(0, len(answer), self.piece):
            writer.write(answer[start : start + self.piece])
            await writer.drain()
            await asyncio.sleep(0.001)

    def drop(self) -> None:
        for each in self.connections:
            each.transport.abort()

    async def stop(self) -> None:
        self._server.close()
        self.drop()
        await self._server.wait_closed()


def run(story: Callable[[Peers, Server, Address], Awaitable[None]]) -> None:
    async def main() -> None:
        peers = Peers("node-7", lambda: None)
        peers.begin(asyncio.get_running_loop())
        server = Server()
        address = await server.start()
        try:
            await asyncio.wait_for(story(peers, server, address), 10)
        finally:
            peers.close()
            await server.stop()

    asyncio.run(main())


def ask(
    peers: Peers, to: Address, *, request: Any = None, timeout_ms: int = 5000, lane: str = ""
) -> asyncio.Future[Any]:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    message = request or DescribeClusterRequest()
    peers.send(to, message, 2, answer.set_result, timeout_ms=timeout_ms, lane=lane)
    return answer


def test_requests_share_a_connection_and_use_a_version_both_know() -> None:
    async def story(peers: Peers, server: Server, address: Address) -> None:
        answers = await asyncio.gather(*(ask(peers, address) for _ in range(20)))
        assert [each.controller_id for each in answers] == list(range(1, 21))
        assert len(server.connections) == 1
        assert server.requests[0] == (ApiKey.DESCRIBE_CLUSTER, 1)
        await ask(peers, address, lane="other")
        assert len(server.connections) == 2

    run(story)


@pytest.mark.parametrize("piece", [1, 3, 4, 5, 17])
def test_answers_that_arrive_in_pieces(piece: int) -> None:
    async def story(peers: Peers, server: Server, address: Address) -> None:
        await ask(peers, address)
        server.piece = piece
        answers = await asyncio.gather(*(ask(peers, address) for _ in range(5)))
        assert [each.controller_id for each in answers] == [2, 3, 4, 5, 6]
        server.piece = None
        # What comes all at once after a piece is taken apart as well.
        answers = await asyncio.gather(*(ask(peers, address) for _ in range(5)))
        assert [each.controller_id for each in answers] == [7, 8, 9, 10, 11]
        assert len(server.connections) == 1

    run(story)


def test_an_api_the_other_side_does_not_serve() -> None:
    async def story(peers: Peers, server: Server, address: Address) -> None:
        answer = await ask(peers, address, request=VoteRequest())
        assert isinstance(answer, Unreachable)
        assert "Vote" in answer.reason

    run(story)


def test_a_broken_connection_is_told_at_once_and_made_anew() -> None:
    async def story(peers: Peers, server: Server, address: Address) -> None:
        server.silent = True
        waiting = [ask(peers, address) for _ in range(3)]
        while len(server.requests) < 3:
            await asyncio.sleep(0.001)
        server.drop()
        answers = await asyncio.gather(*waiting)
        assert all(isinstance(each, Unreachable) and not each.nobody_listens for each in answers)
        server.silent = False
        assert (await ask(peers, address)).controller_id == 4

    run(story)


def test_nobody_listens() -> None:
    async def story(peers: Peers, server: Server, address: Address) -> None:
        await ask(peers, address)
        await server.stop()
        begin = asyncio.get_running_loop().time()
        answer = await ask(peers, address)
        if not answer.nobody_listens:
            answer = await ask(peers, address)
        assert answer.nobody_listens
        assert asyncio.get_running_loop().time() - begin < 1

    run(story)


def test_an_answer_that_does_not_come_ends_the_connection() -> None:
    async def story(peers: Peers, server: Server, address: Address) -> None:
        server.silent = True
        first, second = ask(peers, address, timeout_ms=50), ask(peers, address)
        assert "in time" in (await first).reason
        assert isinstance(await second, Unreachable), "what waits behind it will not come either"

    run(story)


def test_a_node_that_stops_answers_for_others() -> None:
    async def story(peers: Peers, server: Server, address: Address) -> None:
        server.silent = True
        waiting = ask(peers, address)
        while not server.requests:
            await asyncio.sleep(0.001)
        peers.close()
        assert isinstance(await waiting, Unreachable)
        assert isinstance(await ask(peers, address), Unreachable)

    run(story)
