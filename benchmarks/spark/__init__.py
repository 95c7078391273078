"""Moldau's data source for Spark beside Spark's own Kafka connector: the same topics, the same machine, one run."""
