"""Every row of the comparison, in the order in which it is measured and shown.

To add one: write a `Row` in a module here, put it in that module's ROWS, and name the module below.
"""

from __future__ import annotations

from benchmarks.row import Row
from benchmarks.rows import cluster, deaths, groups, java_tools, latency, many_partitions, throughput, transactions

ROWS: tuple[Row, ...] = (
    *throughput.ROWS,
    *many_partitions.ROWS,
    *latency.ROWS,
    *transactions.ROWS,
    *groups.ROWS,
    *java_tools.ROWS,
    *cluster.ROWS,
    *deaths.ROWS,
)
