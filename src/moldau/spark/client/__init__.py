"""A small blocking client: what a Spark task needs to speak to brokers, and no thread of its own."""
