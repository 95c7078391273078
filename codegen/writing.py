"""Emits the body of a message's `write`: one flat function that appends to a local bytearray.

A field that the version cannot carry must have its default value unless the specification calls it ignorable; tagged
fields are written when they differ from their default, in the order of their tags.
"""

from __future__ import annotations

from codegen.defaults import differs
from codegen.grouping import Mixed, letters, pieces, plain_versions, runs, struct_name, tagged_fields
from codegen.source import FunctionScope, Source
from codegen.specification import FEW_TYPES, FIXED_TYPES, Field, Specification, Struct, Versions, snake_case

LOCALS = {"self", "w", "version", "buf", "data", "n", "flexible", "error"}


class WriteEmitter:
    def __init__(self, specification: Specification, taken: set[str]) -> None:
        self.specification = specification
        self.scope = FunctionScope(specification, taken | LOCALS)
        self.formats: set[str] = set()
        self.helpers: set[str] = {"unsupported_version", "UNWRITABLE", "ProtocolError"}
        self.body = Source()
        self.buf = "buf"

    def emit(self, out: Source) -> None:
        name, valid = self.specification.name, self.specification.versions
        self._struct(self.specification.root, "self", valid)
        with out.block("def write(self, w: Writer, version: int) -> None:"):
            with out.block(f"if not {valid.low} <= version <= {valid.high}:"):
                out.add(f'raise unsupported_version("{name}", version)')
            out.add(*self.scope.flag_lines(), "buf = w.buf")
            with out.block("try:"):
                out.add(*(self.body.lines or ["pass"]))
            with out.block("except UNWRITABLE as error:"):
                out.add(f'raise ProtocolError("a value in {name} does not fit its type") from error')

    # --- structs ---

    def _struct(self, struct: Struct, var: str, context: Versions) -> None:
        for group in pieces(struct, context):
            if isinstance(group, Mixed):
                self._mixed(group, var, context)
                continue
            if not group.versions:
                self._demand_defaults(group.fields, var)
                continue
            condition = self.scope.condition(group.versions, context)
            if condition is None:
                self._plain_fields(group.fields, var, group.versions)
                continue
            with self.body.block(f"if {condition}:"):
                self._plain_fields(group.fields, var, group.versions)
            absent = [field for field in group.fields if not field.tagged & context]
            with self.body.block("else:"):
                self._demand_defaults(absent, var)
        self._tagged_section(struct, var, context)

    def _mixed(self, mixed: Mixed, var: str, context: Versions) -> None:
        remaining, word = context, "if"
        for versions, present in mixed.variants:
            condition = self.scope.condition(versions, remaining)
            absent = [field for field in mixed.fields if field not in present and not field.tagged & versions]
            with self.body.block("else:" if condition is None else f"{word} {condition}:"):
                self._plain_fields(present, var, versions)
                self._demand_defaults(absent, var)
            remaining, word = Versions(remaining.low, versions.low - 1), "elif"

    def _demand_defaults(self, fields: list[Field], var: str) -> None:
        for field in fields:
            if not field.ignorable:
                self.helpers.add("not_in_version")
                with self.body.block(f"if {differs(field, f'{var}.{field.attribute}')}:"):
                    self.body.add(f'raise not_in_version("{field.attribute}", version)')

    def _plain_fields(self, fields: list[Field], var: str, context: Versions) -> None:
        for run in runs(fields):
            if run[0].is_fixed:
                self._fixed_run(run, var)
            else:
                self._value(run[0], f"{var}.{run[0].attribute}", context)

    def _fixed_run(self, run: list[Field], var: str) -> None:
        form = letters(run)
        self.formats.add(form)
        values = ", ".join(f"{var}.{field.attribute}" for field in run)
        self.body.add(f"{self.buf} += pack_{struct_name(form)}({values})")

    # --- one value ---

    def _value(self, field: Field, value: str, context: Versions) -> None:
        """Writes null if there is one, and the value otherwise."""
        may_be_none = bool(field.nullable) or field.has_null_default
        if not may_be_none:
            self._present(field, value, context)
            return
        with self.body.block(f"if {value} is None:"):
            self._null(field, context)
        with self.body.block("else:"):
            self._present(field, value, context)

    def _null(self, field: Field, context: Versions) -> None:
        if not field.nullable & context:
            self.body.add(f'raise null_not_allowed("{field.attribute}", version)')
            self.helpers.add("null_not_allowed")
            return
        condition = self.scope.condition(field.nullable, context)
        if condition is not None:
            self.helpers.add("null_not_allowed")
            with self.body.block(f"if not {condition}:"):
                self.body.add(f'raise null_not_allowed("{field.attribute}", version)')
        if field.struct is not None and not field.is_array:
            # Kafka marks a null struct with -1, but with zero where the struct is a tagged field.
            self.body.add(f"{self.buf}.append({0 if field.tagged & context else 255})")
            return
        classic = r"\xff\xff" if field.type == "string" and not field.is_array else r"\xff\xff\xff\xff"
        self._either(
            self.scope.flexible(context & field.nullable, field.flexible),
            [f"{self.buf}.append(0)"],
            [f'{self.buf} += b"{classic}"'],
        )

    def _present(self, field: Field, value: str, context: Versions) -> None:
        if field.is_array:
            self._array(field, value, context)
        elif field.struct is not None:
            if field.nullable & context:
                self.body.add(f"{self.buf}.append(1)")
            self._struct(field.struct, self._named(field, value), context)
        else:
            self._variable(field, value, context)

    def _named(self, field: Field, value: str) -> str:
        var = self.scope.unique(snake_case(field.attribute))
        self.body.add(f"{var} = {value}")
        return var

    def _variable(self, field: Field, value: str, context: Versions) -> None:
        if field.type == "string":
            self.body.add(f"data = {value}.encode()", "n = len(data)")
            self._length("put_string_length", "h", self.scope.flexible(context, field.flexible))
            self.body.add(f"{self.buf} += data")
            return
        self.body.add(f"n = len({value})")
        self._length("put_length", "i", self.scope.flexible(context, field.flexible))
        if field.type == "records":
            assert self.buf == "buf", "record batches are never tagged"
            self.body.add(f"buf = w.splice({value})")
        else:
            self.body.add(f"{self.buf} += {value}")

    def _length(self, helper: str, letter: str, flexible: bool | None) -> None:
        """The length in `n`, small ones without a call."""
        compact = ["if n < 127:", f"    {self.buf}.append(n + 1)", "else:", f"    {helper}({self.buf}, n)"]
        if flexible is not False:
            self.helpers.add(helper)
        if flexible is not True:
            self.formats.add(letter)
        self._either(flexible, compact, [f"{self.buf} += pack_{letter}(n)"])

    def _either(self, flexible: bool | None, compact: list[str], classic: list[str]) -> None:
        if flexible is None:
            with self.body.block("if flexible:"):
                self.body.add(*compact)
            with self.body.block("else:"):
                self.body.add(*classic)
        else:
            self.body.add(*(compact if flexible else classic))

    def _array(self, field: Field, value: str, context: Versions) -> None:
        self.body.add(f"n = len({value})")
        self._length("put_length", "i", self.scope.flexible(context))
        if field.type == "uuid":
            self.helpers.add("join_uuids")
            self.body.add(f"{self.buf} += join_uuids({value})")
        elif field.type in FIXED_TYPES:
            self.helpers.add("pack_numbers")
            many = f'{self.buf} += pack_numbers("{FIXED_TYPES[field.type][0]}", {value})'
            if field.type in FEW_TYPES:
                table = f"PACK_{field.type.upper()}"
                self.helpers |= {"FEW", table}
                self.body.add("if n < FEW:", f"    {self.buf} += {table}[n](*{value})", "else:", f"    {many}")
            else:
                self.body.add(many)
        else:
            element = self.scope.unique(snake_case(field.struct.name if field.struct else f"each_{field.attribute}"))
            with self.body.block(f"for {element} in {value}:"):
                if field.struct is not None:
                    self._struct(field.struct, element, context)
                else:
                    self._variable(field, element, context)

    # --- tagged fields ---

    def _tagged_section(self, struct: Struct, var: str, context: Versions) -> None:
        known = tagged_fields(struct, context)
        flexible = self.scope.flexible(context)
        flexible_context = context & self.specification.flexible
        if flexible is True:
            self._tags(known, var, flexible_context)
        elif flexible is None:
            with self.body.block("if flexible:"):
                self._tags(known, var, flexible_context)
            with self.body.block("else:"):
                self._demand_defaults([field for field in known if not plain_versions(field, context)], var)
        else:
            assert not known, "tagged fields live in flexible versions"

    def _tags(self, known: list[Field], var: str, context: Versions) -> None:
        if not known:
            self.body.add(f"{self.buf}.append(0)")
            return
        flags: list[str] = []
        for field in known:
            flag = self.scope.unique(f"has_{field.attribute}")
            flags.append(flag)
            self._flag(field, flag, f"{var}.{field.attribute}", context)
        with self.body.block(f"if {' or '.join(flags)}:"):
            if len(known) == 1:
                self.body.add(f"{self.buf}.append(1)")
                self._tagged_value(known[0], var, context & known[0].tagged)
            else:
                self.body.add(f"{self.buf}.append({' + '.join(flags)})")
                for field, flag in zip(known, flags, strict=True):
                    with self.body.block(f"if {flag}:"):
                        self._tagged_value(field, var, context & field.tagged)
        with self.body.block("else:"):
            self.body.add(f"{self.buf}.append(0)")

    def _flag(self, field: Field, flag: str, value: str, context: Versions) -> None:
        """Whether a tagged field has something to say; if so in a version without its tag, that is an error."""
        self.body.add(f"{flag} = {differs(field, value)}")
        missing = self.scope.condition(field.tagged, context)
        if missing is None:
            return
        plain = plain_versions(field, context)
        assert not plain, "a field that was plain in a flexible version needs more care"
        with self.body.block(f"if {flag} and not {missing}:"):
            if field.ignorable:
                self.body.add(f"{flag} = False")
            else:
                self.helpers.add("not_in_version")
                self.body.add(f'raise not_in_version("{field.attribute}", version)')

    def _tagged_value(self, field: Field, var: str, context: Versions) -> None:
        self.helpers.add("put_tagged")
        outer, self.buf = self.buf, self.scope.unique("body")
        self.body.add(f"{self.buf} = bytearray()")
        self._plain_fields([field], var, context)
        self.body.add(f"put_tagged({outer}, {field.tag}, {self.buf})")
        self.buf = outer
