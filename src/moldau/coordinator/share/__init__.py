"""The state of share partitions: what of a topic's partition a share group has not finished with."""
