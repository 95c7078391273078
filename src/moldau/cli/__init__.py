"""The command line: people's commands (`moldau …`) and Kafka's commands with their flags (`kafka-topics` …).

They talk to a cluster only over the protocol, so they work against any Kafka; only the offline tools (`log`, `storage`)
open files. Modules here import lazily: a command pays only for what it uses.
"""
