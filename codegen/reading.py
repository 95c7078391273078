"""Emits the body of a message's `read`: one flat function that walks the buffer with a local position.

Nested structs are read in place, so a loop over partitions costs no calls. Bounds are left to Python where a buffer
that is too short raises by itself (indexing, `unpack_from`); slices do not raise, so lengths are compared first.
"""

from __future__ import annotations

from collections.abc import Callable

from codegen.defaults import default_expression
from codegen.grouping import Mixed, letters, pieces, plain_versions, runs, struct_name, tagged_fields
from codegen.source import FunctionScope, Source
from codegen.specification import (
    FEW_TYPES,
    FIXED_TYPES,
    Field,
    Specification,
    Struct,
    Versions,
    python_type,
    snake_case,
)

LOCALS = {"cls", "r", "version", "buf", "pos", "end", "n", "stop", "flexible", "self", "error", "_"}

Sink = Callable[[str], str]  # turns an expression into the statement that keeps its value


class ReadEmitter:
    def __init__(self, specification: Specification, taken: set[str]) -> None:
        self.specification = specification
        self.scope = FunctionScope(specification, taken | LOCALS)
        self.formats: set[str] = set()
        self.helpers: set[str] = {"unsupported_version", "MALFORMED", "ProtocolError"}
        self.body = Source()

    def emit(self, out: Source) -> None:
        name, valid = self.specification.name, self.specification.versions
        self._struct(self.specification.root, "self", valid)
        out.add("@classmethod")
        with out.block("def read(cls, r: Reader, version: int) -> Self:"):
            with out.block(f"if not {valid.low} <= version <= {valid.high}:"):
                out.add(f'raise unsupported_version("{name}", version)')
            out.add(*self.scope.flag_lines())
            out.add("buf = r.buf", "pos = r.pos", "end = r.end" if self._uses_end() else "")
            out.add("self = cls.__new__(cls)")
            with out.block("try:"):
                out.add(*(self.body.lines or ["pass"]))
            with out.block("except MALFORMED as error:"):
                out.add(f'raise ProtocolError("malformed {name}") from error')
            out.add("r.pos = pos", "return self")

    def _uses_end(self) -> bool:
        return any("end" in line for line in self.body.lines)

    # --- structs ---

    def _struct(self, struct: Struct, var: str, context: Versions) -> None:
        for group in pieces(struct, context):
            if isinstance(group, Mixed):
                self._mixed(group, var, context)
                continue
            if not group.versions:
                self._defaults(group.fields, var)
                continue
            condition = self.scope.condition(group.versions, context)
            if condition is None:
                self._plain_fields(group.fields, var, group.versions)
                continue
            with self.body.block(f"if {condition}:"):
                self._plain_fields(group.fields, var, group.versions)
            absent = [field for field in group.fields if not field.tagged & context]
            with self.body.block("else:"):
                self._defaults(absent, var)
        self._tagged_section(struct, var, context)

    def _mixed(self, mixed: Mixed, var: str, context: Versions) -> None:
        remaining, word = context, "if"
        for versions, present in mixed.variants:
            condition = self.scope.condition(versions, remaining)
            absent = [field for field in mixed.fields if field not in present and not field.tagged & versions]
            with self.body.block("else:" if condition is None else f"{word} {condition}:"):
                self._plain_fields(present, var, versions)
                self._defaults(absent, var)
            remaining, word = Versions(remaining.low, versions.low - 1), "elif"

    def _defaults(self, fields: list[Field], var: str) -> None:
        for field in fields:
            self.body.add(f"{var}.{field.attribute} = {default_expression(field)}")

    def _plain_fields(self, fields: list[Field], var: str, context: Versions) -> None:
        for run in runs(fields):
            if run[0].is_fixed:
                self._fixed_run(run, var)
            else:
                self._value(run[0], var, context)

    def _fixed_run(self, run: list[Field], var: str) -> None:
        form = letters(run)
        self.formats.add(form)
        targets = ", ".join(f"{var}.{field.attribute}" for field in run)
        if len(run) == 1:
            targets = f"({targets},)"
        self.body.add(f"{targets} = unpack_{struct_name(form)}(buf, pos)")
        self.body.add(f"pos += {sum(FIXED_TYPES[field.type][1] for field in run)}")

    def _value(self, field: Field, var: str, context: Versions) -> None:
        target = f"{var}.{field.attribute}"
        if field.is_array:
            self._array(field, target, context)
        elif field.struct is not None:
            self._nested(field, target, context)
        else:
            self._variable(field, lambda expression: f"{target} = {expression}", context, nullable=field.nullable)

    def _nested(self, field: Field, target: str, context: Versions, *, tagged: bool = False) -> None:
        """A struct; one that may be null has a marker before it. Null is negative, but zero among tagged fields."""
        assert field.struct is not None
        nullable = bool(field.nullable & context)
        assert not nullable or field.nullable.covers(context), field.name
        var = self.scope.unique(snake_case(field.attribute))

        def read() -> None:
            assert field.struct is not None
            self.body.add(_fresh(var, field.struct), f"{target} = {var}")
            self._struct(field.struct, var, context)

        if not nullable:
            read()
            return
        self.body.add("n = buf[pos]", "pos += 1")
        with self.body.block("if n == 0:" if tagged else "if n > 127:"):
            self.body.add(f"{target} = None")
        with self.body.block("else:"):
            read()

    # --- lengths ---

    def _length(self, field: Field, letter: str, context: Versions) -> None:
        """The length of a string, byte string or array into `n`; below zero means null."""
        helper = "long_string_length" if field.type == "string" and not field.is_array else "long_length"
        self._length_with(helper, letter, self.scope.flexible(context, field.flexible))

    def _length_with(self, helper: str, letter: str, flexible: bool | None) -> None:
        def compact() -> None:
            self.helpers.add(helper)
            self.body.add("n = buf[pos] - 1", "pos += 1")
            with self.body.block("if n > 126:"):
                self.body.add(f"n, pos = {helper}(buf, pos - 1)")

        def classic() -> None:
            self.formats.add(letter)
            self.body.add(f"(n,) = unpack_{letter}(buf, pos)", f"pos += {FIXED_SIZE[letter]}")

        if flexible is None:
            with self.body.block("if flexible:"):
                compact()
            with self.body.block("else:"):
                classic()
        elif flexible:
            compact()
        else:
            classic()

    def _null_or(self, name: str, nullable: Versions, context: Versions, sink: Sink, limit: str) -> bool:
        """Deals with a length that is null or too large; true when what follows goes into an else block."""
        self.helpers.add("bad_length")
        if not nullable & context:
            with self.body.block(f"if n < 0 or {limit}:"):
                self.body.add(f'raise bad_length("{name}", n)')
            return False
        condition = self.scope.condition(nullable, context)
        with self.body.block("if n < 0:"):
            if condition is not None:
                with self.body.block(f"if not {condition}:"):
                    self.body.add(f'raise bad_length("{name}", n)')
            self.body.add(sink("None"))
        with self.body.block(f"elif {limit}:"):
            self.body.add(f'raise bad_length("{name}", n)')
        return True

    # --- values of variable length ---

    def _variable(self, field: Field, sink: Sink, context: Versions, nullable: Versions) -> None:
        self._length(field, "h" if field.type == "string" else "i", context)
        taken = {
            "string": 'str(buf[pos : pos + n], "utf-8")',
            "bytes": "bytes(buf[pos : pos + n])",
            "records": "memoryview(buf)[pos : pos + n]",
        }[field.type]

        def take() -> None:
            self.body.add(sink(taken), "pos += n")

        self._guarded(field.attribute, nullable, context, sink, "n > end - pos", take)

    def _guarded(
        self, name: str, nullable: Versions, context: Versions, sink: Sink, limit: str, take: Callable[[], None]
    ) -> None:
        if self._null_or(name, nullable, context, sink, limit):
            with self.body.block("else:"):
                take()
        else:
            take()

    def _array(self, field: Field, target: str, context: Versions) -> None:
        self._length_with("long_length", "i", self.scope.flexible(context))
        smallest = min(self.specification.minimal_element_size(field, version) for version in context)
        limit = "n > end - pos" if smallest == 1 else f"n * {smallest} > end - pos"

        def take() -> None:
            if field.type == "uuid":
                self.helpers.add("uuids_at")
                self.body.add(f"{target} = uuids_at(buf, pos, n)", "pos += n * 16")
            elif field.type in FIXED_TYPES:
                self.helpers.add("numbers_at")
                letter, size = FIXED_TYPES[field.type]
                advance = "pos += n" if size == 1 else f"pos += n * {size}"
                many = f'{target} = numbers_at("{letter}", buf, pos, n)'
                if field.type in FEW_TYPES:
                    table = f"UNPACK_{field.type.upper()}"
                    self.helpers |= {"FEW", table}
                    self.body.add(
                        "if n < FEW:", f"    {target} = [*{table}[n](buf, pos)]", "else:", f"    {many}", advance
                    )
                else:
                    self.body.add(many, advance)
            else:
                self._elements(field, target, context)

        self._guarded(field.attribute, field.nullable, context, lambda value: f"{target} = {value}", limit, take)

    def _elements(self, field: Field, target: str, context: Versions) -> None:
        items = self.scope.unique(field.attribute)
        # A name of its own for the count: compiled loops look at it again, and `n` is needed for what is inside.
        count = self.scope.unique(f"{field.attribute}_count")
        self.body.add(f"{items}: list[{python_type(field.type)}] = []", f"{target} = {items}", f"{count} = n")
        with self.body.block(f"for _ in range({count}):"):
            if field.struct is None:
                never = Versions(1, 0)
                self._variable(field, lambda value: f"{items}.append({value})", context, nullable=never)
                return
            var = self.scope.unique(snake_case(field.struct.name))
            self.body.add(_fresh(var, field.struct), f"{items}.append({var})")
            self._struct(field.struct, var, context)

    # --- tagged fields ---

    def _tagged_section(self, struct: Struct, var: str, context: Versions) -> None:
        known = tagged_fields(struct, context)
        for field in known:
            plain = plain_versions(field, context)
            if not plain:
                self._defaults([field], var)
        flexible = self.scope.flexible(context)
        if flexible is False:
            return
        flexible_context = context & self.specification.flexible
        if flexible is None:
            with self.body.block("if flexible:"):
                self._tags(known, var, flexible_context)
        else:
            self._tags(known, var, flexible_context)

    def _tags(self, known: list[Field], var: str, context: Versions) -> None:
        if not known:
            self.helpers.add("skip_tags")
            with self.body.block("if buf[pos]:"):
                self.body.add("pos = skip_tags(buf, pos, end)")
            with self.body.block("else:"):
                self.body.add("pos += 1")
            return
        self.helpers |= {"uvarint_at", "bad_tag"}
        tag, previous, stop = self.scope.unique("tag"), self.scope.unique("previous_tag"), self.scope.unique("tag_end")
        count = self.scope.unique("tag_count")
        self.body.add(f"{count}, pos = uvarint_at(buf, pos)")
        with self.body.block(f"if {count}:"):
            self.body.add(f"{previous} = -1")
            with self.body.block(f"for _ in range({count}):"):
                self.body.add(f"{tag}, pos = uvarint_at(buf, pos)", "n, pos = uvarint_at(buf, pos)")
                self.body.add(f"{stop} = pos + n")
                with self.body.block(f"if {tag} <= {previous} or {stop} > end:"):
                    self.body.add(f"raise bad_tag({tag})")
                self.body.add(f"{previous} = {tag}")
                word = "if"
                for field in known:
                    condition = self.scope.condition(field.tagged, context)
                    extra = "" if condition is None else f" and {condition}"
                    with self.body.block(f"{word} {tag} == {field.tag}{extra}:"):
                        self._tagged_value(field, var, field.tagged & context)
                    word = "elif"
                with self.body.block("else:"):
                    self.body.add(f"pos = {stop}")
                with self.body.block(f"if pos != {stop}:"):
                    self.body.add(f"raise bad_tag({tag})")

    def _tagged_value(self, field: Field, var: str, context: Versions) -> None:
        if field.struct is not None and not field.is_array:
            self._nested(field, f"{var}.{field.attribute}", context, tagged=True)
        else:
            self._plain_fields([field], var, context)


def _fresh(var: str, struct: Struct) -> str:
    """An instance without running its constructor: every field is set one by one."""
    return f"{var} = {struct.name}.__new__({struct.name})"


FIXED_SIZE = {"h": 2, "i": 4}
