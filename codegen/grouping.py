"""How the fields of a struct are cut into pieces that are read or written together.

Fields that live in the same versions share one `if`; neighbours of fixed width inside it share one `struct` call.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.specification import FIXED_TYPES, NO_VERSIONS, Field, Struct, Versions


@dataclass(slots=True)
class Group:
    """Neighbouring fields that are on the wire (outside the tagged section) in the same versions."""

    versions: Versions
    fields: list[Field]


def plain_versions(field: Field, context: Versions) -> Versions:
    """The versions of a context in which a field is written in its place, not as a tagged field."""
    present = field.versions & context
    if not present:
        return NO_VERSIONS
    if not field.tagged & context:
        return present
    if field.tagged.low <= present.low:
        return NO_VERSIONS
    return Versions(present.low, field.tagged.low - 1)


def groups(struct: Struct, context: Versions) -> list[Group]:
    """The untagged part of a struct, in order; a group with empty versions holds fields that are never there."""
    found: list[Group] = []
    for field in struct.fields:
        if field.tagged & context and not plain_versions(field, context):
            continue
        versions = plain_versions(field, context) or NO_VERSIONS
        if found and found[-1].versions == versions:
            found[-1].fields.append(field)
        else:
            found.append(Group(versions, [field]))
    return found


def tagged_fields(struct: Struct, context: Versions) -> list[Field]:
    tagged = [field for field in struct.fields if field.tagged & context]
    return sorted(tagged, key=lambda field: field.tag or 0)


def runs(fields: list[Field]) -> list[list[Field]]:
    """Neighbours of fixed width together, every other field alone."""
    found: list[list[Field]] = []
    for field in fields:
        if field.is_fixed and found and found[-1][0].is_fixed:
            found[-1].append(field)
        else:
            found.append([field])
    return found


def letters(fields: list[Field]) -> str:
    return "".join(FIXED_TYPES[field.type][0] for field in fields)


def struct_name(letters: str) -> str:
    """A Python name for a struct format; the letters for boolean and uuid are not allowed in names."""
    return letters.replace("?", "z").replace("16s", "u")
