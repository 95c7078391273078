"""`kafka-transactions` and `moldau txn` on a live cluster: look at transactions, find those that hang, end them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from moldau.cli.kafka import topics as kafka_topics
from moldau.cli.kafka import transactions as command
from tests.cli.conftest import Done

Call = Callable[..., Done]
Moldau = Callable[..., Done]


@pytest.fixture
def there(call: Call, bootstrap: str, topic: str) -> str:
    created = call(kafka_topics.main, "--bootstrap-server", bootstrap, "--create", "--topic", topic, "--partitions", 2)
    assert created.code == 0, created
    return topic


@pytest.fixture
def open_transaction(bootstrap: str, there: str) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{there}", "log_level": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(there, b"a", partition=1)
    assert producer.flush(10) == 0
    yield producer
    producer.purge()


@pytest.fixture
def tool(call: Call, bootstrap: str) -> Callable[..., Done]:
    return lambda *arguments: call(command.main, "--bootstrap-server", bootstrap, *arguments)


def rows(done: Done) -> list[dict[str, str]]:
    assert done.code == 0, done.err
    header, *lines = [[cell.strip() for cell in line.rstrip("\t").split("\t")] for line in done.lines]
    return [dict(zip(header, line, strict=True)) for line in lines]


def is_fenced(producer: Producer) -> bool:
    try:
        producer.commit_transaction(10)
    except KafkaException as problem:
        fatal: bool = problem.args[0].fatal()
        return fatal
    return False


@pytest.mark.usefixtures("open_transaction")
def test_looking_at_transactions(tool: Call, there: str) -> None:
    name = f"tx-{there}"
    (listed,) = rows(tool("list", "--transactional-id-pattern", name))
    assert (listed["TransactionalId"], listed["TransactionState"]) == (name, "Ongoing")
    assert rows(tool("list", "--duration-filter", 3_600_000, "--transactional-id-pattern", name)) == []
    (described,) = rows(tool("describe", "--transactional-id", name))
    assert described["TopicPartitions"] == f"{there}-1"
    assert described["ProducerId"] == listed["ProducerId"]
    assert int(described["TransactionDurationMs"]) >= 0
    (producer,) = rows(tool("describe-producers", "--topic", there, "--partition", 1))
    assert producer["ProducerId"] == listed["ProducerId"]
    assert producer["CurrentTransactionStartOffset"] == "0"
    assert rows(tool("describe-producers", "--topic", there, "--partition", 0)) == []
    # Its coordinator knows of it, so it does not hang.
    assert rows(tool("find-hanging", "--topic", there, "--max-transaction-timeout", 0)) == []


def test_aborting_in_a_partition(tool: Call, there: str, open_transaction: Producer) -> None:
    nothing = tool("abort", "--topic", there, "--partition", 1, "--start-offset", 7)
    assert nothing.code == 1
    assert "Could not find any open transactions starting at offset 7" in nothing.err
    assert tool("abort", "--topic", there, "--partition", 1, "--start-offset", 0).code == 0
    (producer,) = rows(tool("describe-producers", "--topic", there, "--partition", 1))
    assert producer["CurrentTransactionStartOffset"] == "None"
    assert tool("abort", "--topic", there, "--partition", 1).code == 1


@pytest.mark.parametrize(
    "words", [("forceTerminateTransaction", "--transactionalId"), ("force-terminate", "--transactional-id")]
)
def test_terminating_by_force(tool: Call, there: str, open_transaction: Producer, words: tuple[str, str]) -> None:
    name = f"tx-{there}"
    assert tool(*words, name).code == 0
    (described,) = rows(tool("describe", "--transactional-id", name))
    assert described["TransactionState"] == "Empty"
    assert is_fenced(open_transaction)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("describe", "--transactional-id", "nobody-has-this-id"), "Failed to describe transaction state"),
        (("find-hanging",), "requires either --topic or --broker-id"),
        (("find-hanging", "--partition", 1, "--broker-id", 1), "requires --topic"),
        (("describe-producers", "--topic", "no-such-topic", "--partition", 0), "no-such-topic-0"),
        (("list", "--transactional-id-pattern", "("), "The regular expression is not valid"),
        (("dance",), "Unknown command 'dance'"),
    ],
)
def test_what_goes_wrong(tool: Call, arguments: tuple[Any, ...], complaint: str) -> None:
    done = tool(*arguments)
    assert done.code == 1
    assert complaint in done.err


def test_peoples_command(moldau: Moldau, there: str, open_transaction: Producer) -> None:
    name = f"tx-{there}"
    (listed,) = json.loads(moldau("txn", "list", "-p", name, "-s", "Ongoing", "-o", "json").out)
    assert (listed["transactionalId"], listed["state"]) == (name, "Ongoing")
    assert moldau("txn", "list", "-p", "nobody", "-o", "table").out == "No transactional ids.\n"
    described = json.loads(moldau("txn", "describe", name, "-o", "json").out)
    assert described["partitions"] == [f"{there}-1"]
    assert described["openForMs"] >= 0
    assert f"{there}-1" in moldau("txn", "describe", name).out
    ended = moldau("txn", "abort", name, "-y")
    assert (ended.code, ended.out) == (0, f"{name}: aborted; its producer is fenced.\n")
    assert is_fenced(open_transaction)
    assert "nothing was open" in moldau("txn", "abort", name, "-y").out
    missing = moldau("txn", "describe", "nobody-has-this-id")
    assert missing.code == 1
    assert "There is no transactional id 'nobody-has-this-id'" in missing.err
