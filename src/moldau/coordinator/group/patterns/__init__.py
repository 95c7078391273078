"""Regular expressions that consumers subscribe with: RE2's syntax, matched in time that grows with the name only."""
