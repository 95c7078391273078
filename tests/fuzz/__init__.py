"""Arbitrary and nearly right bytes: only answers or clean disconnects, bounded memory, nothing logged as our error."""
