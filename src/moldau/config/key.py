"""One configuration key: its facts as Kafka has them, and on demand what it means here.

Documentation and effect live in modules of their own that are loaded when first asked for, so that starting a node
does not pay for them. A key never holds a value; values live in the views (`NodeConfig`, `TopicConfig`, ...).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from moldau.config.types import ConfigType, ConfigValue, parse

if TYPE_CHECKING:
    from moldau.config.validators import Validator

Importance = Literal["high", "medium", "low"]
UpdateMode = Literal["read-only", "per-broker", "cluster-wide"]


class Effect(NamedTuple):
    """Whether a key does anything here, and if not, why not."""

    active: bool
    reason: str = ""


class ConfigKey:
    """One key of one family (broker, topic, group, client metrics, quotas)."""

    __slots__ = ("default", "family", "importance", "internal", "name", "required", "type", "update_mode", "validator")

    def __init__(
        self,
        family: str,
        name: str,
        type_: ConfigType,
        default: ConfigValue,
        validator: Validator | None,
        importance: Importance,
        update_mode: UpdateMode,
        *,
        required: bool = False,
        internal: bool = False,
    ) -> None:
        self.family = family
        self.name = name
        self.type = type_
        self.default = default
        self.validator = validator
        self.importance = importance
        self.update_mode = update_mode
        self.required = required
        self.internal = internal

    def __repr__(self) -> str:
        return f"<ConfigKey {self.family} {self.name}: {self.type.name}>"

    @property
    def sensitive(self) -> bool:
        """Whether the value is a secret that is never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def synonyms(self) -> tuple[str, ...]:
        """The broker keys that give this key its value where it is not set itself, strongest first."""
        from moldau.config.table import broker_synonyms_of

        return broker_synonyms_of(self)

    @property
    def doc(self) -> str:
        """What the key is for, in a sentence or two."""
        from moldau.config.docs import doc_of

        return doc_of(self.family, self.name)

    @property
    def effect(self) -> Effect:
        """Whether the key does anything here, or why not."""
        from moldau.config.docs import effect_of

        return effect_of(self.family, self.name)

    def parse(self, text: str | None) -> ConfigValue:
        """The value `text` stands for, checked. Raises ConfigError."""
        value = parse(self.name, text, self.type)
        return value if self.validator is None else self.validator.checked(self.name, value)

    def allowed(self) -> str:
        """The allowed values in a few characters, or nothing when the type says it all."""
        return "" if self.validator is None else self.validator.describe()
