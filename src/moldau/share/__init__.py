"""Share groups at the leader of a partition (KIP-932): who holds which record, until when, and how often it was tried.

Pure state machines over the ports. What is stored of them, and where, is the business of the `StateStore` they get.
"""
