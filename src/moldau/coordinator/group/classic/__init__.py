"""Classic groups: members join, their leader shares the work out, heartbeats keep them in. Any protocol type."""
