"""Memory that is used again: never while somebody still looks at it."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from moldau.records.compression import CODEC_BY_NAME, CorruptRecords, RecordsTooLarge, compress, decompress_into
from moldau.spark import worker_memory, worker_socket
from moldau.spark.buffers import POOL_BYTES_MAX, SMALLEST_POOLED_BYTES, BufferPool

SIZE = 3 * SMALLEST_POOLED_BYTES


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_memory_is_used_again_when_nobody_has_it_any_more() -> None:
    pool = BufferPool()
    first = pool.take(SIZE)
    assert first.size == SIZE
    where = address(first)
    second = pool.take(SIZE)
    assert address(second) != where
    del first
    assert address(pool.take(SIZE - 100)) == where


@pytest.mark.parametrize("keep", [lambda each: each[10:20], memoryview, lambda each: pa.py_buffer(each[5:])])
def test_whoever_has_a_part_has_it_for_good(keep) -> None:
    pool = BufferPool()
    taken = pool.take(SIZE)
    taken[:] = 7
    part = keep(taken)
    del taken
    pool.take(SIZE)[:] = 9
    assert set(bytes(part)) == {7}


def test_an_arrow_batch_keeps_what_it_was_made_of() -> None:
    pool = BufferPool()
    numbers = pool.take_numbers(50_000, np.int64)
    numbers[:] = np.arange(50_000)
    batch = pa.RecordBatch.from_arrays(
        [pa.Array.from_buffers(pa.int64(), 50_000, [None, pa.py_buffer(numbers)])], names=["n"]
    )
    del numbers
    pool.take_numbers(50_000, np.int64)[:] = -1
    assert batch.column("n")[49_999].as_py() == 49_999


def test_the_pool_has_an_end() -> None:
    pool = BufferPool()
    taken = [pool.take(POOL_BYTES_MAX // 4) for _ in range(10)]
    assert pool._bytes <= POOL_BYTES_MAX
    assert len({address(each) for each in taken}) == 10
    assert pool.take(POOL_BYTES_MAX + 1).size == POOL_BYTES_MAX + 1


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_unpacking_into_given_memory(name: str) -> None:
    data = bytes(range(256)) * 300
    packed = compress(CODEC_BY_NAME[name], data)
    output = memoryview(bytearray(len(data) + 50))
    assert decompress_into(CODEC_BY_NAME[name], packed, output[20:]) == len(data)
    assert output[20 : 20 + len(data)] == data
    with pytest.raises(RecordsTooLarge):
        decompress_into(CODEC_BY_NAME[name], packed, output[:1000])
    with pytest.raises(CorruptRecords):
        decompress_into(CODEC_BY_NAME[name], b"\xff" * 100, output)


def test_a_worker_that_has_settled_has_little_to_search() -> None:
    program = "import gc, json; from moldau.spark.worker_memory import settle; settle(); print(gc.get_freeze_count())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) > 1000
    assert worker_memory.SETTLING_TASKS == 2
    assert gc.isenabled()


def test_acknowledging_changes_nothing_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        other, _ = server.accept()
        with other:
            worker_socket._found_by_process = 0
            worker_socket.acknowledge_now()
            assert other.fileno() in worker_socket._workers_own
            assert server.fileno() not in worker_socket._workers_own
            client.sendall(b"x" * 10_000)
            assert other.recv(10_000, socket.MSG_WAITALL) == b"x" * 10_000
            # Nobody else holds the connection: its end is seen.
            client.close()
            assert other.recv(1) == b""
            worker_socket.acknowledge_now()
