"""Kafka's wire protocol: primitive types, generated messages, the table of APIs, error codes, frames."""
