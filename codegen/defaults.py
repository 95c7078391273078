"""Python expressions for a field's default, and for "this field differs from its default"."""

from __future__ import annotations

from codegen.specification import Field


def default_expression(field: Field) -> str:
    """A fresh default value."""
    if field.has_null_default:
        return "None"
    if field.is_array:
        return "[]"
    if field.struct is not None:
        return f"{field.struct.name}()"
    if field.type == "uuid":
        return "ZERO_UUID"
    return literal(field.default)


def parameter(field: Field) -> tuple[str, str, str]:
    """Type and default in a signature, where a fresh value must not stand; and which argument means a fresh one.

    Every default is of its parameter's type, as compiled code demands: an empty list that is told by its identity.
    """
    if field.has_null_default or not (field.is_array or field.struct is not None):
        return field.annotation, default_expression(field), ""
    if field.is_array:
        return field.annotation, "UNSET_LIST", "UNSET_LIST"
    if field.nullable:
        return field.annotation, "UNSET", "UNSET"
    return f"{field.annotation} | None", "None", "None"


def literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def differs(field: Field, value: str) -> str:
    """A condition that is true when `value` is not the field's default."""
    if field.has_null_default:
        return f"{value} is not None"
    if field.is_array:
        return f"{value} is None or len({value}) > 0" if field.nullable else f"len({value}) > 0"
    if field.struct is not None:
        inner = " or ".join(differs(each, f"{value}.{each.attribute}") for each in field.struct.fields)
        return f"{value} is None or {inner}" if field.nullable else inner
    if field.type == "bool":
        return f"not {value}" if field.default else value
    return f"{value} != {default_expression(field)}"
