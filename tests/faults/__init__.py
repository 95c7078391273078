"""Faults that a real node must survive: kills, torn and damaged files, failing disks."""
