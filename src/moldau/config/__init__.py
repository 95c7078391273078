"""Every Apache Kafka configuration key as one table, and the typed views of it that the rest of the broker reads.

`table` holds the keys, `types` how a value is written and checked, `node_config`, `topic_config` and `group_config`
the effective settings, `describe` what an administrator is told about them. Nothing here reads a file, a clock or the
environment by itself: properties come in as text and typed values go out.
"""
