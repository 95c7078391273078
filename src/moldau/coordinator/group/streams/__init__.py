"""Streams groups (KIP-1071): members that share the tasks of one topology."""
