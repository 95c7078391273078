"""Facts about Kafka's configuration keys, read from Kafka itself; see `dump`."""
