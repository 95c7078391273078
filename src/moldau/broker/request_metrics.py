"""Counts, sizes and latencies of requests by API, cheap enough for the hot path.

A latency falls into the bucket of its bit length in microseconds (1, 2, 4, 8 … us), so recording one is a list
increment; the page that shows them does the arithmetic.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Final

BUCKETS: Final = 25  # up to 2**24 us = 16.8 s; longer ones share the last bucket


class ApiFigures:
    """What was seen of one API since the start."""

    __slots__ = ("bytes_in", "count", "latency_us_buckets", "latency_us_sum")

    def __init__(self) -> None:
        self.count = 0
        self.bytes_in = 0
        self.latency_us_sum = 0
        self.latency_us_buckets = [0] * BUCKETS


class RequestMetrics:
    __slots__ = ("by_api", "errors")

    def __init__(self) -> None:
        self.by_api: dict[int, ApiFigures] = {}
        self.errors: dict[int, int] = {}

    def record(self, api_key: int, started_ns: int, frame_bytes: int) -> None:
        elapsed_us = (perf_counter_ns() - started_ns) // 1000
        figures = self.by_api.get(api_key)
        if figures is None:
            figures = self.by_api[api_key] = ApiFigures()
        figures.count += 1
        figures.bytes_in += frame_bytes
        figures.latency_us_sum += elapsed_us
        index = elapsed_us.bit_length()
        figures.latency_us_buckets[index if index < BUCKETS else BUCKETS - 1] += 1

    def failed(self, error_code: int) -> None:
        self.errors[error_code] = self.errors.get(error_code, 0) + 1
