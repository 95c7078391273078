"""Share groups: members that read the same partitions together, record by record."""
