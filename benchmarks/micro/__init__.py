"""Small measurements of single pieces of the hot path, to look closer at what a row of the comparison shows."""
