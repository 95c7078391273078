"""What can be wrong with a value, as opposed to what is wrong with the set-up.

A bad value is the record's own fault: it is reported in the record's `_error` and may go to a dead-letter topic. What
is not the record's fault (a registry that does not answer, a schema that Spark has no type for) is a `MoldauError` and
stops the query, because treating good records as bad would lose them.

The kinds are names in texts, not exceptions: a batch may have thousands of bad values, and their kind travels to the
dead-letter topic as a header.
"""

from __future__ import annotations

from typing import Final

from moldau.client.errors import MoldauError

# The value ends before it should, goes on after it should, or is not made of what its format allows.
MALFORMED: Final = "MalformedValue"
# It can be read, but is not what the schema wants.
MISMATCH: Final = "SchemaMismatch"
# It does not begin with what a schema registry's serializers write.
UNFRAMED: Final = "NotFramed"
# The registry has no schema of this id.
UNKNOWN_SCHEMA: Final = "UnknownSchema"


class RegistryError(MoldauError):
    """The schema registry cannot be reached or refuses: nothing is known about the records."""


class UnknownSchemaError(Exception):
    """The registry answered that it has no such schema. The record's fault."""


class MismatchError(Exception):
    """Values of one schema cannot be read as values of another. The record's fault."""


def reason(kind: str, text: str) -> str:
    """The form in which codecs report a bad value."""
    return f"{kind}: {text}"
