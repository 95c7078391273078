"""The JSON files of `kafka-reassign-partitions` and `kafka-leader-election`: read, checked, and written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from moldau.cli.errors import CliError

Partition = tuple[str, int]
Replica = tuple[str, int, int]
ANY_DIRECTORY = "any"
VERSION = 1
NOWHERE: Mapping[Replica, str] = {}

H = TypeVar("H", bound=Hashable)


@dataclass(slots=True)
class Assignment:
    """What a file asks for: replicas of partitions, in its order, and directories of single replicas."""

    partitions: list[tuple[Partition, list[int]]] = field(default_factory=list)
    directories: dict[Replica, str] = field(default_factory=dict)

    @property
    def replicas(self) -> dict[Partition, list[int]]:
        return dict(self.partitions)


def read_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise CliError(f"Error: cannot read {path}: {error.strerror}") from None


def partition_name(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def parse_assignment(text: str) -> Assignment:
    found = Assignment()
    for entry in _entries(_document(text), "partitions"):
        partition = (_text(entry, "topic"), _number(entry, "partition"))
        replicas = entry.get("replicas")
        if not isinstance(replicas, list) or not all(type(each) is int for each in replicas):
            raise CliError(f"Error: replicas of {partition_name(partition)} must be a list of broker ids")
        directories = entry.get("log_dirs", [ANY_DIRECTORY] * len(replicas))
        if not isinstance(directories, list) or len(directories) != len(replicas):
            raise CliError(
                f"Error: Size of replicas list {replicas} is different from size of log dirs list {directories} for "
                f"partition {partition_name(partition)}"
            )
        found.partitions.append((partition, replicas))
        for broker, directory in zip(replicas, directories, strict=True):
            if directory != ANY_DIRECTORY:
                found.directories[(*partition, broker)] = directory
    return found


def check_executable(assignment: Assignment) -> None:
    """What is wrong with a file before any cluster is asked."""
    if not assignment.partitions:
        raise CliError("Error: Partition reassignment list cannot be empty")
    if any(not replicas for _, replicas in assignment.partitions):
        raise CliError("Error: Partition replica list cannot be empty")
    twice = duplicates(partition for partition, _ in assignment.partitions)
    if twice:
        names = ",".join(map(partition_name, twice))
        raise CliError(f"Error: Partition reassignment contains duplicate topic partitions: {names}")
    repeating = [(partition, duplicates(replicas)) for partition, replicas in assignment.partitions]
    repeating = [each for each in repeating if each[1]]
    if repeating:
        texts = ". ".join(
            f"{partition_name(partition)} contains multiple entries for {','.join(map(str, brokers))}"
            for partition, brokers in repeating
        )
        raise CliError(f"Error: Partition replica lists may not contain duplicate entries: {texts}")


def parse_topics(text: str) -> list[str]:
    return [_text(entry, "topic") for entry in _entries(_document(text), "topics")]


def parse_elections(text: str) -> list[Partition]:
    document = _document(text)
    if "partitions" not in document:
        raise CliError('Replica election data is missing "partitions" field')
    found = [(_text(entry, "topic"), _number(entry, "partition")) for entry in _entries(document, "partitions")]
    twice = duplicates(found)
    if twice:
        names = ", ".join(map(partition_name, twice))
        raise CliError(f"Replica election data contains duplicate partitions: [{names}]")
    return found


def format_assignment(replicas: Mapping[Partition, Sequence[int]], directories: Mapping[Replica, str] = NOWHERE) -> str:
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "replicas": list(replicas[topic, index]),
            "log_dirs": [directories.get((topic, index, each), ANY_DIRECTORY) for each in replicas[topic, index]],
        }
        for topic, index in sorted(replicas)
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def duplicates(values: Iterable[H]) -> list[H]:
    return [value for value, count in Counter(values).items() if count > 1]


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        raise CliError("Error: The input string is not a valid JSON") from None
    if not isinstance(document, dict):
        raise CliError("Error: The input string is not a valid JSON")
    version = document.get("version", VERSION)
    if version != VERSION:
        raise CliError(f"Error: Not supported version field value {version}")
    return document


def _entries(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    entries = document.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise CliError(f"Error: {name} must be a list of objects")
    return entries


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str):
        raise CliError(f"Error: {name} must be a string in {json.dumps(entry)}")
    return value


def _number(entry: Mapping[str, Any], name: str) -> int:
    value = entry.get(name)
    if type(value) is not int:
        raise CliError(f"Error: {name} must be a number in {json.dumps(entry)}")
    return value
