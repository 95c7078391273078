"""Arrow columns from Avro values: runs a program over the rows of a batch, and says what is wrong with the bad ones.

It keeps nothing between batches but the program.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moldau.spark.values import avro_kernel
from moldau.spark.values.avro_program import Program, compile_program
from moldau.spark.values.avro_schema import AvroSchema, Layout
from moldau.spark.values.errors import MALFORMED, MISMATCH, reason
from moldau.spark.values.vectors import Columns, Vectors

_TEXTS = {
    avro_kernel.TRUNCATED: reason(MALFORMED, "it ends in the middle of a field"),
    avro_kernel.LEFT_OVER: reason(MALFORMED, "bytes are left over after its last field: another schema wrote it"),
    avro_kernel.LONG_VARINT: reason(MALFORMED, "a number in it has more than 64 bits"),
    avro_kernel.NEGATIVE_LENGTH: reason(MALFORMED, "a length in it is negative"),
    avro_kernel.NO_SUCH_BRANCH: reason(MALFORMED, "it has a branch that its union does not have"),
    avro_kernel.NO_SUCH_SYMBOL: reason(MISMATCH, "it has a symbol that the enum does not have"),
    avro_kernel.NOT_UTF8: reason(MALFORMED, "a string in it is not UTF-8"),
    avro_kernel.NOT_AN_INT: reason(MALFORMED, "an int in it has more than 32 bits"),
    avro_kernel.NOT_A_BOOLEAN: reason(MALFORMED, "a boolean in it is neither 0 nor 1"),
    avro_kernel.TOO_MANY_ITEMS: reason(MALFORMED, "an array or a map in it says it is longer than the value"),
    avro_kernel.DECIMAL_TOO_LARGE: reason(MISMATCH, "a decimal in it has more digits than its precision"),
    avro_kernel.TOO_DEEP: reason(MALFORMED, "it is nested too deeply"),
    avro_kernel.OUT_OF_RANGE: reason(MISMATCH, "a timestamp in it is out of Spark's range"),
}


class AvroReader:
    """Reads values of one writer's schema as values of the reader's schema."""

    __slots__ = ("_layout", "_program")

    def __init__(self, writer: AvroSchema, layout: Layout) -> None:
        self._layout = layout
        self._program: Program = compile_program(writer, layout)

    def read(self, data: Any, starts: Any, ends: Any) -> tuple[Any, dict[int, str]]:
        """(column of the rows that can be read, in order; why the others cannot).

        `starts` and `ends` say where in `data` (an array of bytes) each row's value is.
        """
        vectors = Vectors(self._layout.level_of, self._layout.levels, starts.size)
        errors = np.zeros(starts.size, dtype=np.int64)
        row = 0
        while row < starts.size:
            row, full = avro_kernel.decode_rows(
                data,
                starts,
                ends,
                row,
                self._program.code,
                self._program.table,
                vectors.base,
                vectors.room,
                vectors.slots,
                vectors.slots.view(np.float64),
                vectors.counts,
                vectors.level_of,
                vectors.stack,
                vectors.before,
                errors,
            )
            if full >= 0:
                vectors.grow(full)
        constants = np.frombuffer(self._program.constants or b"\0", dtype=np.uint8)
        column = Columns(vectors, data, constants).column(self._layout.root)
        return column, {int(row): self._text(int(errors[row])) for row in np.flatnonzero(errors)}

    def _text(self, code: int) -> str:
        if code >= avro_kernel.FIRST_MESSAGE:
            return reason(MISMATCH, self._program.messages[code - avro_kernel.FIRST_MESSAGE])
        return _TEXTS[code]
