"""The index files by themselves: bisection in memory and in the file, writing, cutting, blank tails."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.errors import CorruptIndex
from moldau.log.offset_index import OffsetIndex
from moldau.log.time_index import TimeIndex
from moldau.log.transaction_index import AbortedTransaction, TransactionIndex
from moldau.testing.disk import SimulatedDisk

pairs = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=60)


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dirs("/d")
    return disk


@settings(max_examples=100, deadline=None)
@given(pairs, st.lists(st.sampled_from(["write", "let_go", "reopen", "blank"]), max_size=6), st.data())
def test_lookups_do_not_depend_on_where_the_entries_are(
    steps: list[tuple[int, int]], events: list[str], data: st.DataObject
) -> None:
    disk = new_disk()
    index = OffsetIndex(disk, "/d/i", fresh=True)
    expected: list[tuple[int, int]] = []
    key = value = 0
    moments = {data.draw(st.integers(0, len(steps))): event for event in events}
    for i, (more, further) in enumerate([*steps, (1, 1)]):
        event = moments.get(i)
        if event is not None:
            index.write()
        if event == "let_go":
            index.let_go()
        elif event in ("reopen", "blank"):
            if event == "blank":
                disk.open("/d/i").append([bytes(8 * 37)])
            index = OffsetIndex(disk, "/d/i", fresh=False)
        key, value = key + more, value + further
        index.append(key, value)
        expected.append((key, value))
    assert index.entries() == expected
    assert len(index) == len(expected)
    assert index.last() == expected[-1]
    keys, values = [k for k, _ in expected], [v for _, v in expected]
    for target in range(0, key + 2, max(1, key // 40)):
        i = bisect_right(keys, target) - 1
        assert index.floor(target) == (expected[i] if i >= 0 else None)
    for target in range(0, value + 2, max(1, value // 40)):
        i = bisect_right(values, target) - 1
        assert index.boundary_before(target) == (values[i] if i >= 0 else 0)
    cut = data.draw(st.integers(0, key + 1))
    index.truncate_to(cut)
    left = [entry for entry in expected if entry[0] < cut]
    assert index.entries() == left
    index.write()
    assert disk.read_bytes("/d/i") == b"".join(OffsetIndex.ENTRY.pack(*entry) for entry in left)


def test_layouts() -> None:
    disk = new_disk()
    offsets = OffsetIndex(disk, "/d/o", fresh=True)
    offsets.append(5, 4097)
    offsets.write()
    assert disk.read_bytes("/d/o").hex() == "0000000500001001"
    times = TimeIndex(disk, "/d/t", fresh=True)
    times.append_if_later(258, 5)
    times.append_if_later(258, 6)
    times.append_if_later(257, 7)
    times.write()
    assert disk.read_bytes("/d/t").hex() == "000000000000010200000005"


@pytest.mark.parametrize("content", [b"\x00" * 7, OffsetIndex.ENTRY.pack(3, 5000), OffsetIndex.ENTRY.pack(-3, 50)])
def test_what_cannot_be_an_index_is_noticed(content: bytes) -> None:
    disk = new_disk()
    disk.write_atomically("/d/i", content)
    with pytest.raises(CorruptIndex):
        OffsetIndex(disk, "/d/i", fresh=False).check(4096)
    with pytest.raises(CorruptIndex):
        OffsetIndex(disk, "/d/none", fresh=False).check(4096)


def test_transaction_index() -> None:
    disk = new_disk()
    index = TransactionIndex(disk, "/d/x", exists=False)
    assert not disk.exists("/d/x")
    aborted = [AbortedTransaction(7, 0, 5, 3), AbortedTransaction(8, 3, 9, 10), AbortedTransaction(7, 12, 14, 15)]
    for each in aborted:
        index.append(each)
    assert disk.read_bytes("/d/x")[:34].hex() == (
        "0000" "0000000000000007" "0000000000000000" "0000000000000005" "0000000000000003"
    )  # fmt: skip
    for known in (index, TransactionIndex(disk, "/d/x", exists=True)):
        assert known.collect(0, 4) == (aborted[:2], True)
        assert known.collect(6, 20) == (aborted[1:], False)
        assert known.collect(10, 11) == ([], True)
    index.truncate_to(14)
    assert TransactionIndex(disk, "/d/x", exists=True).entries() == aborted[:2]
    index.append(aborted[2])
    index.clear()
    assert index.entries() == []
    disk.write_atomically("/d/x", b"\x00\x01" + bytes(32))
    with pytest.raises(CorruptIndex):
        TransactionIndex(disk, "/d/x", exists=True).entries()
