"""The Arrow type that Spark expects for one of its own types."""

from __future__ import annotations

from typing import Any

from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType


def arrow_type(kind: DataType) -> Any:
    """Timestamps are in UTC, which is what Spark itself computes with; its sessions' zones are for showing them."""
    return to_arrow_type(kind, timezone="UTC")
