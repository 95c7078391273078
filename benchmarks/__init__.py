"""The same work on Moldau and on Apache Kafka, side by side: `python -m benchmarks` from the repository's root."""
