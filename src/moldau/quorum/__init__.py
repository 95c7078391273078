"""KRaft: the replicated log of the cluster's metadata, who leads it, its snapshots, and formatting its storage."""
