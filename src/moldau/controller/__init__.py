"""The active controller: requests become decisions, decisions become metadata records, records become the cluster."""
