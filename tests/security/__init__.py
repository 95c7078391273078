"""Attacks on a node without authentication: hostile frames, connections, messages, records, names and loads."""
