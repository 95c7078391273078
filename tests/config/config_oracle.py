"""Questions about configurations, answered by Apache Kafka's own classes."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

ORACLE = Path(__file__).parent / "java" / "ConfigOracle.java"

ONE_NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}
BROKER_ONLY = {
    "node.id": "2",
    "process.roles": "broker",
    "listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}
CONTROLLER_ONLY = {
    "node.id": "1",
    "process.roles": "controller",
    "listeners": "CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}


def ask_kafka(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One answer for each question: {"result": ...} or {"error": text, "kind": exception}."""
    dump = pytest.importorskip("codegen.dump_configs.dump")
    if shutil.which("java") is None or not pytest.importorskip("codegen.kafka_jars").can_fetch():
        pytest.skip("needs a Java runtime and Kafka's jars")
    with tempfile.TemporaryDirectory() as scratch:
        asked, answered = Path(scratch) / "questions.json", Path(scratch) / "answers.json"
        asked.write_text(json.dumps(questions), encoding="utf-8")
        dump.run_java(ORACLE, str(asked), str(answered))
        answers: list[dict[str, Any]] = json.loads(answered.read_text(encoding="utf-8"))
        return answers
