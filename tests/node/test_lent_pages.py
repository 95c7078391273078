"""Bytes a file lends to a socket: the same bytes, whatever happens to the file before they are asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moldau.node.disk import LEND_FROM_BYTES, OsDisk

SIZE = 3 * LEND_FROM_BYTES


@pytest.fixture
def disk() -> OsDisk:
    return OsDisk(lambda call: call())


@pytest.fixture
def content() -> bytes:
    return os.urandom(SIZE)


@pytest.mark.parametrize("position", [0, 1, 4095, 4096, 4097, LEND_FROM_BYTES])
@pytest.mark.parametrize("length", [100, LEND_FROM_BYTES - 1, LEND_FROM_BYTES, LEND_FROM_BYTES + 1])
def test_lends_what_it_would_read(disk: OsDisk, tmp_path: Path, content: bytes, position: int, length: int) -> None:
    file = disk.open(str(tmp_path / "log"))
    file.append([content])
    assert bytes(file.lend(position, length)) == content[position : position + length]


def test_what_is_lent_stays_when_the_file_goes(disk: OsDisk, tmp_path: Path, content: bytes) -> None:
    """Retention may delete a segment while a slow client still reads it."""
    file = disk.open(str(tmp_path / "log"))
    file.append([content])
    lent = file.lend(10, LEND_FROM_BYTES)
    file.close()
    disk.remove(str(tmp_path / "log"))
    assert bytes(lent) == content[10 : 10 + LEND_FROM_BYTES]


def test_a_file_that_others_cut_is_no_signal(disk: OsDisk, tmp_path: Path, content: bytes) -> None:
    """A page that is not there any more would end the process if it were touched: less is given instead."""
    path = tmp_path / "log"
    file = disk.open(str(path))
    file.append([content])
    os.truncate(path, 1000)
    assert bytes(file.lend(0, SIZE)) == content[:1000]


def test_where_pages_cannot_be_lent_they_are_copied(disk: OsDisk, tmp_path: Path, content: bytes) -> None:
    disk.lends = False
    file = disk.open(str(tmp_path / "log"))
    file.append([content])
    lent = file.lend(5, LEND_FROM_BYTES)
    assert isinstance(lent, bytes)
    assert lent == content[5 : 5 + LEND_FROM_BYTES]
