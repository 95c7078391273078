"""Log records as JSON, in the form Kafka's tools print them: original field names, only the fields a version has.

Used for the records of internal topics and of the metadata log. A record that cannot be read is never an error of the
tool: the text says so, and the dump goes on.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from moldau.protocol.codec import decode
from moldau.protocol.uuids import uuid_to_string
from moldau.protocol.wire import ProtocolError, Reader

_CONTROL_MESSAGES = {
    2: ("LeaderChange:", "LeaderChangeMessage"),
    3: ("SnapshotHeader", "SnapshotHeaderRecord"),
    4: ("SnapshotFooter", "SnapshotFooterRecord"),
    5: ("KRaftVersion", "KRaftVersionRecord"),
    6: ("KRaftVoters", "VotersRecord"),
}
_FRAME_VERSION = 1


@cache
def _shapes() -> dict[str, Any]:
    text = Path(__file__).with_name("record_shapes.json").read_text(encoding="utf-8")
    shapes: dict[str, Any] = json.loads(text)
    return shapes


@cache
def _names_by_type(package: str, suffix: str) -> dict[int, str]:
    """Names of the package's messages by the number that stands for their type."""
    return {
        shape["type"]: name
        for name, shape in _shapes().items()
        if shape["module"].startswith(f"{package}.") and name.endswith(suffix) and shape["type"] is not None
    }


@cache
def _message_class(name: str) -> Any:
    return getattr(import_module(f"moldau.protocol.generated.{_shapes()[name]['module']}"), name)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def read_message(name: str, data: bytes, version: int) -> Any:
    """The message of this name in these bytes, as plain JSON values."""
    return to_json(name, decode(_message_class(name), data, version), version)


def to_json(name: str, message: Any, version: int) -> dict[str, Any]:
    structs = _shapes()[name]["structs"]
    return _struct(structs, structs[name], message, version)


def _struct(structs: dict[str, Any], fields: list[dict[str, Any]], message: Any, version: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    defaults = None
    for field in fields:
        low, high = field["versions"]
        if not low <= version <= high:
            continue
        value = getattr(message, field["attribute"])
        tagged = field.get("tagged")
        if tagged and tagged[0] <= version <= tagged[1]:
            # A tagged field that has its default is not written, and so not shown.
            defaults = type(message)() if defaults is None else defaults
            if value == getattr(defaults, field["attribute"]):
                continue
        if field.get("array") and value is not None:
            out[field["name"]] = [_value(structs, field["type"], each, version) for each in value]
        else:
            out[field["name"]] = _value(structs, field["type"], value, version)
    return out


def _value(structs: dict[str, Any], kind: str, value: Any, version: int) -> Any:
    if value is None:
        return None
    if kind == "uuid":
        return uuid_to_string(value)
    if kind in ("bytes", "records"):
        return base64.b64encode(value).decode("ascii")
    if kind in structs:
        return _struct(structs, structs[kind], value, version)
    return value


# Records of internal topics


CoordinatorValues = tuple[int, dict[str, Any], int | None, dict[str, Any] | None]


def coordinator_values(package: str, key: bytes, value: bytes | None) -> CoordinatorValues | None:
    """Type, key, version and value of a record of an internal topic; None for a type we do not know.

    A deleted record has neither version nor value.
    """
    kind = int.from_bytes(key[:2], "big", signed=True)
    key_name = _names_by_type(package, "Key").get(kind)
    if key_name is None:
        return None
    key_data = read_message(key_name, key[2:], 0)
    if value is None:
        return kind, key_data, None, None
    version = int.from_bytes(value[:2], "big", signed=True)
    data = read_message(key_name.removesuffix("Key") + "Value", value[2:], version)
    if key_name == "GroupMetadataKey" and data.get("protocolType") == "consumer":
        _open_member_bytes(data)
    return kind, key_data, version, data


def coordinator_record(package: str, offset: int, key: bytes, value: bytes | None) -> tuple[str, str | None]:
    """Key and value of a record of `__consumer_offsets`, `__transaction_state` or `__share_group_state` as texts."""
    try:
        read = coordinator_values(package, key, value)
    except ProtocolError as error:
        return f"Error at offset {offset}, skipping. {error}", None
    if read is None:
        kind = int.from_bytes(key[:2], "big", signed=True)
        return f"Unknown record type {kind} at offset {offset}, skipping.", None
    kind, key_data, version, value_data = read
    key_text = compact({"type": str(kind), "data": key_data})
    return key_text, "<DELETE>" if version is None else compact({"version": str(version), "data": value_data})


def _open_member_bytes(group: dict[str, Any]) -> None:
    """Members of a classic consumer group keep subscription and assignment as bytes that have a form of their own."""
    names = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
    for member in group.get("members") or []:
        for field, name in names.items():
            try:
                raw = base64.b64decode(member.get(field) or "")
                version = int.from_bytes(raw[:2], "big", signed=True)
                # Clients may write newer versions; what we know of them is at the front.
                known = min(version, _message_class(name).MAX_VERSION)
                message = _message_class(name).read(Reader(raw, 2), known)
            except ProtocolError:
                continue
            member[field] = to_json(name, message, known)


# Records of the metadata log


def metadata_record(offset: int, value: bytes) -> str:
    try:
        reader = Reader(value)
        frame, kind, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
        if frame != _FRAME_VERSION:
            raise ProtocolError(f"unknown frame version {frame}")
        return _typed_record("metadata", kind, version, value[reader.pos :])
    except ProtocolError as error:
        return f"Error at {offset}, skipping. {error}"


def remote_log_record(offset: int, value: bytes) -> str:
    try:
        reader = Reader(value)
        kind, version = reader.uvarint(), reader.uvarint()
        return _typed_record("storage", kind, version, value[reader.pos :])
    except ProtocolError as error:
        return f"Error at offset {offset}, skipping. {error}"


def _typed_record(package: str, kind: int, version: int, data: bytes) -> str:
    name = _names_by_type(package, "Record").get(kind)
    if name is None:
        raise ProtocolError(f"unknown record type {kind}")
    return compact({"type": _enum_name(name), "version": version, "data": read_message(name, data, version)})


def _enum_name(name: str) -> str:
    return "".join(f"_{char}" if char.isupper() else char.upper() for char in name).lstrip("_")


# Control records


def control_record(key: bytes, value: bytes) -> str:
    """What a control record says, as Kafka's tools show it."""
    kind = int.from_bytes(key[2:4], "big", signed=True)
    if kind in (0, 1):
        epoch = int.from_bytes(value[2:6], "big", signed=True)
        return f"endTxnMarker: {'COMMIT' if kind else 'ABORT'} coordinatorEpoch: {epoch}"
    if kind not in _CONTROL_MESSAGES:
        return f"controlType: UNKNOWN({kind})"
    label, name = _CONTROL_MESSAGES[kind]
    # These messages begin with their own version, which is also their first field.
    version = int.from_bytes(value[:2], "big", signed=True)
    try:
        return f"{label} {compact(read_message(name, value, version))}"
    except ProtocolError as error:
        return f"{label} cannot be read: {error}"
