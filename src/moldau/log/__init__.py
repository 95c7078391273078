"""One partition's log on disk, in Apache Kafka's formats: segments, indexes, recovery, retention, producer state.

Start reading at `partition_log.py`; everything else here serves it. The room is synchronous, knows no network and
touches files only through `moldau.ports.Disk`.
"""
