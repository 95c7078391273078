"""What groups whose work the coordinator shares out have in common: assignors, and what they are computed from."""
