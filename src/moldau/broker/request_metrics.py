"""Counts, sizes and latencies of requests by API, cheap enough for the hot path.

A latency falls into the bucket of its bit length in microseconds (1, 2, 4, 8 … us), so recording one is two list
increments; the page that shows them does the arithmetic.
"""

from __future__ import annotations

from time import perf_counter_ns

BUCKETS = 25  # up to 2**24 us = 16.8 s; longer ones share the last bucket


class RequestMetrics:
    __slots__ = ("bytes_in", "count", "errors", "latency_us_buckets", "latency_us_sum")

    def __init__(self) -> None:
        self.count: dict[int, int] = {}
        self.bytes_in: dict[int, int] = {}
        self.latency_us_sum: dict[int, int] = {}
        self.latency_us_buckets: dict[int, list[int]] = {}
        self.errors: dict[int, int] = {}

    def record(self, api_key: int, started_ns: int, frame_bytes: int) -> None:
        elapsed_us = (perf_counter_ns() - started_ns) // 1000
        buckets = self.latency_us_buckets.get(api_key)
        if buckets is None:
            buckets = self.latency_us_buckets[api_key] = [0] * BUCKETS
            self.count[api_key] = self.bytes_in[api_key] = self.latency_us_sum[api_key] = 0
        index = elapsed_us.bit_length()
        buckets[index if index < BUCKETS else BUCKETS - 1] += 1
        self.count[api_key] += 1
        self.bytes_in[api_key] += frame_bytes
        self.latency_us_sum[api_key] += elapsed_us

    def failed(self, error_code: int) -> None:
        self.errors[error_code] = self.errors.get(error_code, 0) + 1
