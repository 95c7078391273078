"""Transactions: who may write under a transactional id, and whether all of it counts or nothing."""
