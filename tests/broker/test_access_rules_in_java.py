"""Apache Kafka's own authorizer and ours, asked the same questions about the same entries."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from moldau.broker.access_rules import AccessRules
from moldau.broker.authorization import Operation, ResourceKind
from moldau.metadata.access import ALL_OPERATIONS, ALLOW, DENY, LITERAL, PREFIXED
from moldau.metadata.image import EMPTY_IMAGE, AccessControlEntry

pytestmark = [pytest.mark.java, pytest.mark.slow]
ORACLE = Path(__file__).parent / "java" / "AccessOracle.java"
WORLDS = 400
NAMES = ["*", "o", "or", "orders", "orders-eu", "payments", "Orders"]
PRINCIPALS = ["User:ann", "User:bob", "User:root"]
HOSTS = ["192.0.2.1", "192.0.2.2"]
KINDS = [int(ResourceKind.TOPIC), int(ResourceKind.GROUP), int(ResourceKind.TRANSACTIONAL_ID)]


def world(chance: Random) -> dict[str, Any]:
    return {
        "open": chance.random() < 0.5,
        "entries": [
            [
                chance.choice(KINDS),
                chance.choice(NAMES),
                chance.choice([LITERAL, PREFIXED]),
                chance.choice([*PRINCIPALS, "User:*", "Group:ann"]),
                chance.choice([*HOSTS, "*"]),
                chance.choice([ALL_OPERATIONS, *map(int, Operation)]),
                chance.choice([ALLOW, ALLOW, DENY]),
            ]
            for _ in range(chance.randrange(12))
        ],
        "questions": [
            [
                chance.choice(PRINCIPALS),
                chance.choice(HOSTS),
                int(chance.choice(list(Operation))),
                chance.choice(KINDS),
                chance.choice(NAMES),
            ]
            for _ in range(20)
        ],
    }


def ours(told: dict[str, Any]) -> list[bool]:
    entries = {
        bytes([number]): AccessControlEntry(bytes([number]), *each) for number, each in enumerate(told["entries"])
    }
    image = replace(EMPTY_IMAGE, acls=entries)
    rules = AccessRules(lambda: image, super_users=frozenset({"User:root"}), open_by_default=told["open"])
    return [
        rules.allows(principal, host, Operation(operation), ResourceKind(kind), name)
        for principal, host, operation, kind, name in told["questions"]
    ]


def test_both_say_the_same(tmp_path: Path) -> None:
    dump = pytest.importorskip("codegen.dump_configs.dump")
    if shutil.which("java") is None or not pytest.importorskip("codegen.kafka_jars").can_fetch():
        pytest.skip("needs a Java runtime and Kafka's jars")
    chance = Random(7)
    worlds = [world(chance) for _ in range(WORLDS)]
    asked, answered = tmp_path / "worlds.json", tmp_path / "answers.json"
    asked.write_text(json.dumps(worlds))
    dump.run_java(ORACLE, str(asked), str(answered))
    answers = json.loads(answered.read_text())
    assert any(map(any, answers))
    for told, theirs in zip(worlds, answers, strict=True):
        assert ours(told) == theirs, told
