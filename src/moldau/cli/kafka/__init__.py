"""Kafka's own commands: the same names, flags and line formats as Apache Kafka 4.3's, because scripts parse them.

Each module has `main(argv=None) -> int` and is reachable as `kafka-<name>` and `kafka-<name>.sh`.
"""
