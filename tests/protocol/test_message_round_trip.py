"""Every message and version of every package: what is written is read back, and strangers' bytes do no harm."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from protocol_schemas import Case, all_cases, messages

from moldau.protocol.codec import decode, encode
from moldau.protocol.wire import ProtocolError, Reader

CASES = all_cases()
LATEST = [case for case in CASES if case.version == case.schema["versions"][1]]
QUICK = settings(
    max_examples=6, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


def mutations(data: bytes, chance: random.Random) -> list[bytes]:
    """Cut off, flipped, grown, and with lengths that lie."""
    changed = [data[: chance.randrange(len(data) + 1)], data + b"\x00", data + chance.randbytes(5)]
    for replacement in (0x00, 0x7F, 0x80, 0xFF, chance.randrange(256)):
        if data:
            mutant = bytearray(data)
            mutant[chance.randrange(len(data))] = replacement
            changed.append(bytes(mutant))
    if len(data) > 5:
        at = chance.randrange(len(data) - 4)
        changed.append(data[:at] + b"\xff\xff\xff\xff\x0f" + data[at:])
        changed.append(data[:at] + b"\x7f\xff\xff\xff" + data[at + 4 :])
    return changed


def survives(case: Case, data: bytes) -> None:
    """Reading gives a message or a ProtocolError, and never touches a byte past the end."""
    try:
        message = decode(case.message_class(), data, case.version)
    except ProtocolError:
        return
    assert len(encode(message, case.version)) <= len(data) + 4


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_written_is_read_back(case: Case) -> None:
    @given(message=messages(case), seed=st.integers(0, 2**32))
    @QUICK
    def check(message: Any, seed: int) -> None:
        cls = case.message_class()
        data = encode(message, case.version)
        assert decode(cls, data, case.version) == message
        # Inside a larger buffer, from a view, the reader stops where the message does.
        reader = Reader(memoryview(b"before" + data + b"after"), 6)
        assert cls.read(reader, case.version) == message
        assert reader.pos == 6 + len(data)
        for mutant in mutations(data, random.Random(seed)):
            survives(case, mutant)

    check()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_defaults_can_be_written_in_every_version(case: Case) -> None:
    cls = case.message_class()
    structs = case.schema["structs"]
    needs_records = any(
        field["type"] == "records" and "nullable" not in field for fields in structs.values() for field in fields
    )
    message = cls()
    if not needs_records:
        assert decode(cls, encode(message, case.version), case.version) == message


@pytest.mark.parametrize("case", LATEST, ids=str)
def test_any_bytes_at_all(case: Case) -> None:
    @given(data=st.binary(max_size=120))
    @QUICK
    def check(data: bytes) -> None:
        survives(case, data)

    check()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_truncation_is_refused(case: Case) -> None:
    """No prefix of a message is a message: nothing is read from beyond the end, nothing is made up."""

    @given(message=messages(case))
    @settings(QUICK, max_examples=1)
    def check(message: Any) -> None:
        data = encode(message, case.version)
        for size in range(min(len(data), 300)):
            with pytest.raises(ProtocolError):
                decode(case.message_class(), data[:size], case.version)

    check()


@pytest.mark.parametrize("case", LATEST, ids=str)
def test_versions_that_do_not_exist(case: Case) -> None:
    cls = case.message_class()
    for version in (cls.MIN_VERSION - 1, cls.MAX_VERSION + 1):
        with pytest.raises(ProtocolError, match=f"has no version {version}"):
            decode(cls, bytes(100), version)
        with pytest.raises(ProtocolError, match=f"has no version {version}"):
            encode(cls(), version)
