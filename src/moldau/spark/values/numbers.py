"""Numbers as Kafka's own serializers write them: big-endian, and nothing around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from moldau.spark.values.errors import MALFORMED, reason
from moldau.spark.values.framing import SchemaId

_TYPES = {
    "short": (">i2", np.int16, pa.int16()),
    "int": (">i4", np.int32, pa.int32()),
    "long": (">i8", np.int64, pa.int64()),
    "float": (">f4", np.float32, pa.float32()),
    "double": (">f8", np.float64, pa.float64()),
}


@dataclass(slots=True, frozen=True)
class NumberSource:
    kind: str

    @property
    def is_framed(self) -> bool:
        return False

    @property
    def has_messages(self) -> bool:
        return False

    @property
    def arrow_type(self) -> Any:
        return _TYPES[self.kind][2]

    def reader(self, _: SchemaId | None) -> _NumberCodec:
        return _NumberCodec(self.kind)

    def writer(self) -> _NumberCodec:
        return _NumberCodec(self.kind)


@dataclass(slots=True, frozen=True)
class _NumberCodec:
    kind: str

    def read(self, data: Any, starts: Any, ends: Any) -> tuple[Any, dict[int, str]]:
        wire, native, arrow = _TYPES[self.kind]
        size = np.dtype(wire).itemsize
        fits = ends - starts == size
        places = starts[fits][:, None] + np.arange(size)
        numbers = np.ascontiguousarray(data[places]).view(wire).reshape(-1).astype(native)
        wrong = {
            int(row): reason(MALFORMED, f"it has {ends[row] - starts[row]} bytes where Kafka's {self.kind} has {size}")
            for row in np.flatnonzero(~fits)
        }
        return pa.array(numbers, arrow), wrong

    def write(self, column: Any) -> Any:
        wire, native, _ = _TYPES[self.kind]
        numbers = np.array(column.fill_null(0), dtype=native).astype(wire)
        size = np.dtype(wire).itemsize
        offsets = np.arange(0, (numbers.size + 1) * size, size, dtype=np.int32)
        present = np.array(column.is_valid(), dtype=np.bool_)
        bitmap = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(
            pa.binary(), numbers.size, [bitmap, pa.py_buffer(offsets), pa.py_buffer(numbers.tobytes())]
        )
