"""Spark looks for modules whose names begin with `pyspark_` and registers their DefaultSource: this is Moldau's."""

from __future__ import annotations

from moldau.spark.source import MoldauDataSource as DefaultSource

__all__ = ["DefaultSource"]
