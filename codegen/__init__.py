"""Tools that turn Apache Kafka's published specifications into this project's code. Not part of the package."""
