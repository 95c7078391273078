"""Clients' metrics: who is asked for what, and what is accepted when."""

from __future__ import annotations

from typing import Any

import pytest
from broker_node import Client, SimulatedNode

from moldau.broker import telemetry
from moldau.protocol.errors import ErrorCode
from moldau.protocol.generated.wire import incremental_alter_configs_request as incremental
from moldau.protocol.generated.wire.api_versions_request import ApiVersionsRequest
from moldau.protocol.generated.wire.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from moldau.protocol.generated.wire.push_telemetry_request import PushTelemetryRequest
from moldau.protocol.uuids import ZERO_UUID
from moldau.records.compression import Codec, compress


def subscribe(node: SimulatedNode, name: str, **settings: str) -> None:
    configs = [
        incremental.AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in settings.items()
    ]
    resource = incremental.AlterConfigsResource(resource_type=16, resource_name=name, configs=configs)
    answer = node.client.send(incremental.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer


def get(client: Client, instance_id: bytes = ZERO_UUID) -> Any:
    return client.send(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


def push(client: Client, told: Any, metrics: bytes = b"m", codec: int = 0, **how: Any) -> int:
    request = PushTelemetryRequest(
        client_instance_id=told.client_instance_id,
        subscription_id=how.pop("subscription_id", told.subscription_id),
        compression_type=codec,
        metrics=metrics,
        **how,
    )
    code: int = client.send(request, 0).error_code
    return code


def counters(node: SimulatedNode) -> telemetry.TelemetryHandlers:
    assert node.broker.telemetry is not None
    return node.broker.telemetry


def test_without_subscriptions_nothing_is_asked_for(node: SimulatedNode) -> None:
    told = get(node.client)
    assert told.error_code == 0
    assert told.client_instance_id != ZERO_UUID
    assert (told.requested_metrics, told.push_interval_ms) == ([], 300_000)
    assert told.accepted_compression_types == [4, 3, 1, 2]
    assert (told.telemetry_max_bytes, told.delta_temporality) == (1_048_576, True)


def test_a_matching_client_is_asked(node: SimulatedNode) -> None:
    subscribe(node, "java", metrics="org.apache.kafka.", interval_ms="1000", match="client_software_name=apache.*")
    subscribe(node, "here", metrics="a.b,a.c", interval_ms="5000", match="client_source_address=192\\..*,client_id=t.*")
    subscribe(node, "none", metrics="never", match="client_id=somebody-else")
    assert get(node.client).requested_metrics == ["a.b", "a.c"]
    java = Client(node)
    java.send(ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.3.1"), 3)
    told = get(java)
    assert told.requested_metrics == ["a.b", "a.c", "org.apache.kafka."]
    assert told.push_interval_ms == 1000


def test_a_star_asks_for_everything(node: SimulatedNode) -> None:
    subscribe(node, "some", metrics="a.b")
    subscribe(node, "all", metrics="*")
    assert get(node.client).requested_metrics == ["*"]


def test_a_known_client_keeps_its_id(node: SimulatedNode) -> None:
    told = get(node.client)
    node.clock.advance(300_000)
    assert get(node.client, told.client_instance_id).client_instance_id == told.client_instance_id


def test_pushes_at_their_pace(node: SimulatedNode) -> None:
    subscribe(node, "all", metrics="*", interval_ms="1000")
    told = get(node.client)
    assert push(node.client, told, b"12345") == 0, "the first push may come at once"
    assert push(node.client, told) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    node.clock.advance(999)
    assert push(node.client, told) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    node.clock.advance(1)
    assert push(node.client, told, b"123") == 0
    assert (counters(node).pushes, counters(node).bytes_received, counters(node).throttled) == (2, 8, 2)


def test_asking_too_often_is_throttled(node: SimulatedNode) -> None:
    told = get(node.client)
    assert get(node.client, told.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    node.clock.advance(300_000)
    assert get(node.client, told.client_instance_id).error_code == 0


def test_a_changed_subscription_must_be_learnt_anew(node: SimulatedNode) -> None:
    subscribe(node, "all", metrics="a", interval_ms="1000")
    told = get(node.client)
    subscribe(node, "all", metrics="b")
    assert push(node.client, told) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = get(node.client, told.client_instance_id)
    assert again.error_code == 0, "whoever was told so may ask at once"
    assert again.subscription_id != told.subscription_id
    assert again.requested_metrics == ["b"]
    node.clock.advance(1000)
    assert push(node.client, again) == 0
    assert counters(node).unknown_subscriptions == 1


def test_the_last_push_comes_out_of_turn_and_is_the_last(node: SimulatedNode) -> None:
    told = get(node.client)
    assert push(node.client, told) == 0
    assert push(node.client, told, terminating=True) == 0
    node.clock.advance(300_000)
    assert push(node.client, told) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_metrics(node: SimulatedNode, codec: int) -> None:
    assert push(node.client, get(node.client), compress(Codec(codec), b"metrics" * 100), codec) == 0


def test_payloads_that_are_refused() -> None:
    node = SimulatedNode(telemetry_max_bytes="100")
    assert push(Client(node), get(Client(node)), b"x" * 101) == ErrorCode.TELEMETRY_TOO_LARGE
    assert push(Client(node), get(Client(node)), b"x", 9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert push(Client(node), get(Client(node)), b"no gzip", 1) == ErrorCode.INVALID_RECORD
    bomb = compress(Codec.GZIP, bytes(10_000))
    assert len(bomb) < 100
    assert push(Client(node), get(Client(node)), bomb, 1) == ErrorCode.INVALID_RECORD
    nobody = PushTelemetryRequest(client_instance_id=ZERO_UUID)
    assert node.client.send(nobody, 0).error_code == ErrorCode.INVALID_REQUEST


def test_a_client_that_disconnects_is_forgotten(node: SimulatedNode) -> None:
    get(node.client)
    assert counters(node).instance_count == 1
    node.client.disconnect()
    assert counters(node).instance_count == 0


def test_so_are_idle_ones_and_the_oldest_of_too_many(node: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    get(Client(node))
    node.clock.advance(3 * 300_000 + 1)
    get(Client(node))
    assert counters(node).instance_count == 1
    monkeypatch.setattr(telemetry, "INSTANCES_MAX", 5)
    for _ in range(10):
        get(Client(node))
    assert counters(node).instance_count == 5
