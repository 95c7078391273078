"""The group coordinator: committed offsets and the groups they belong to, one shard per partition of their topic."""
