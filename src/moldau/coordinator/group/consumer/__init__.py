"""Consumer groups (KIP-848): members say what they want and what they have, the coordinator shares the work out."""
