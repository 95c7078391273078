"""How the fields of a struct are cut into pieces that are read or written together.

Fields that live in the same versions share one `if`; neighbours of fixed width inside it share one `struct` call, and
so do neighbours of fixed width that differ in their versions, with one format for each set of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.specification import FIXED_TYPES, NO_VERSIONS, Field, Struct, Versions

# Beyond this a chain of conditions costs more than reading a few fields one by one.
MOST_VARIANTS = 4


@dataclass(slots=True)
class Group:
    """Neighbouring fields that are on the wire (outside the tagged section) in the same versions."""

    versions: Versions
    fields: list[Field]


@dataclass(slots=True)
class Mixed:
    """Neighbouring fields of fixed width that come and go with the version."""

    fields: list[Field]
    variants: list[tuple[Versions, list[Field]]]  # ranges that cover the context, newest first; the fields they have


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


def pieces(struct: Struct, context: Versions) -> list[Group | Mixed]:
    """The untagged part of a struct, in order; a group with empty versions holds fields that are never there."""
    plain = [field for field in struct.fields if plain_versions(field, context) or not field.tagged & context]
    found: list[Group | Mixed] = []
    for stretch in runs(plain):
        if len(stretch) > 1:
            mixed = _mixed(stretch, context)
            if mixed is not None:
                found.append(mixed)
                continue
        for field in stretch:
            versions = plain_versions(field, context)
            last = found[-1] if found else None
            if isinstance(last, Group) and last.versions == versions:
                last.fields.append(field)
            else:
                found.append(Group(versions, [field]))
    return found


def _mixed(stretch: list[Field], context: Versions) -> Mixed | None:
    """Neighbours of fixed width that differ in their versions, as one list per range of versions, newest first."""
    variants: list[tuple[Versions, list[Field]]] = []
    for version in reversed(context):
        present = [field for field in stretch if version in plain_versions(field, context)]
        if variants and variants[-1][1] == present:
            variants[-1] = (Versions(version, variants[-1][0].high), present)
        else:
            variants.append((Versions(version, version), present))
    if 1 < len(variants) <= MOST_VARIANTS and max(len(present) for _, present in variants) > 1:
        return Mixed(stretch, variants)
    return None


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
