"""`meta.properties`: the file that ties a log directory to one cluster, one node and one directory id.

Only reads, writes and compares. Whether a directory may be formatted is decided in `format.py`.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from moldau.metadata.image import RESERVED_DIRECTORIES
from moldau.ports import Disk
from moldau.protocol.uuids import uuid_from_string, uuid_to_string

META_PROPERTIES: Final = "meta.properties"


class MetaProperties(NamedTuple):
    cluster_id: str
    node_id: int
    directory_id: bytes | None
    """None in directories that an older Kafka formatted."""


class CorruptMetaProperties(Exception):
    """The file is there but does not say what it must."""


def new_uuid(random: Random) -> bytes:
    """A random id: not one of the reserved ones, and no text form that a command line would take for a flag."""
    while True:
        raw = bytearray(random.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        made = bytes(raw)
        if made not in RESERVED_DIRECTORIES and not uuid_to_string(made).startswith("-"):
            return made


def read_properties(text: str) -> dict[str, str]:
    """Key and value of each line that is neither empty nor a comment; backslashes only quote the next character."""
    found = {}
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, _, value = stripped.partition("=")
        found[key.strip()] = value.strip().replace("\\", "")
    return found


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """What the directory belongs to; None when it was never formatted."""
    path = f"{directory}/{META_PROPERTIES}"
    try:
        values = read_properties(disk.read_bytes(path).decode())
    except FileNotFoundError:
        return None
    try:
        version = int(values.get("version", "0"))
        if version not in (0, 1):
            raise CorruptMetaProperties(f"{path} has version {version}, this software knows 0 and 1")
        directory_text = values.get("directory.id")
        return MetaProperties(
            cluster_id=values["cluster.id"],
            node_id=int(values["node.id"] if version else values["broker.id"]),
            directory_id=uuid_from_string(directory_text) if directory_text else None,
        )
    except (KeyError, ValueError) as error:
        raise CorruptMetaProperties(f"{path} cannot be read: {error!r}") from error


def write_meta_properties(disk: Disk, directory: str, properties: MetaProperties) -> None:
    lines = ["#", f"cluster.id={properties.cluster_id}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={uuid_to_string(properties.directory_id)}")
    lines += [f"node.id={properties.node_id}", "version=1", ""]
    disk.write_atomically(f"{directory}/{META_PROPERTIES}", "\n".join(lines).encode())
