"""Who may do what: denials beat permissions, silence means no, and entries apply to just the names they mean."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.broker.access_rules import STANDARD_AUTHORIZER, AccessRules, authorizer_of
from moldau.broker.authorization import Operation, ResourceKind
from moldau.config.node_config import NodeConfig
from moldau.config.types import ConfigError
from moldau.metadata.access import (
    ALL_OPERATIONS,
    ALLOW,
    ANY,
    DENY,
    LITERAL,
    MATCH,
    PREFIXED,
    EntryFilter,
    check_entry,
)
from moldau.metadata.image import EMPTY_IMAGE, AccessControlEntry
from moldau.protocol.errors import ApiError

TOPIC = ResourceKind.TOPIC
_ids = count(1)


def entry(
    name: str = "orders",
    *,
    operation: int = Operation.READ,
    permission: int = ALLOW,
    principal: str = "User:ann",
    host: str = "*",
    pattern: int = LITERAL,
    kind: int = TOPIC,
) -> AccessControlEntry:
    return AccessControlEntry(
        next(_ids).to_bytes(16, "big"), kind, name, pattern, principal, host, operation, permission
    )


def rules(*entries: AccessControlEntry, open_by_default: bool = False) -> AccessRules:
    image = replace(EMPTY_IMAGE, acls={each.id: each for each in entries})
    return AccessRules(lambda: image, super_users=frozenset({"User:root"}), open_by_default=open_by_default)


def may(
    asked: AccessRules, operation: Operation, name: str = "orders", who: str = "User:ann", host: str = "192.0.2.1"
) -> bool:
    return asked.allows(who, host, operation, TOPIC, name)


def test_without_entries_only_super_users_may() -> None:
    assert may(rules(), Operation.READ, who="User:root")
    assert not may(rules(), Operation.READ)
    assert may(rules(open_by_default=True), Operation.READ)


def test_entries_about_a_resource_close_it_for_everybody_else() -> None:
    asked = rules(entry(), open_by_default=True)
    assert may(asked, Operation.READ)
    assert not may(asked, Operation.WRITE)
    assert not may(asked, Operation.READ, who="User:bob")
    assert may(asked, Operation.READ, "payments", who="User:bob"), "nothing is said about that one"


def test_a_denial_beats_every_permission() -> None:
    asked = rules(
        entry(operation=ALL_OPERATIONS, principal="User:*"), entry(permission=DENY, operation=Operation.WRITE)
    )
    assert may(asked, Operation.READ)
    assert not may(asked, Operation.WRITE)
    assert may(asked, Operation.WRITE, who="User:bob")
    assert may(asked, Operation.WRITE, who="User:root")


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_who_may_do_something_may_see_it(operation: Operation) -> None:
    assert may(rules(entry(operation=operation)), Operation.DESCRIBE)
    assert not may(rules(entry(operation=operation)), Operation.DESCRIBE_CONFIGS)
    denied = rules(entry(operation=operation, permission=DENY), entry(operation=Operation.DESCRIBE))
    assert may(denied, Operation.DESCRIBE), "a denial is just what it says"


def test_changing_settings_is_seeing_them() -> None:
    asked = rules(entry(operation=Operation.ALTER_CONFIGS))
    assert may(asked, Operation.DESCRIBE_CONFIGS)
    assert not may(asked, Operation.DESCRIBE)


def test_hosts() -> None:
    asked = rules(entry(host="192.0.2.1"))
    assert may(asked, Operation.READ)
    assert not may(asked, Operation.READ, host="192.0.2.2")


def test_prefixes_and_the_name_of_everything() -> None:
    asked = rules(entry("ord", pattern=PREFIXED), entry("*", principal="User:bob"), entry("pay", kind=3))
    assert may(asked, Operation.READ, "orders")
    assert may(asked, Operation.READ, "ord")
    assert not may(asked, Operation.READ, "or")
    assert may(asked, Operation.READ, "whatever", who="User:bob")
    assert not may(asked, Operation.READ, "pay"), "that entry is about a group"
    assert not may(rules(entry("*", pattern=PREFIXED)), Operation.READ, "orders"), "a prefix is taken literally"


def test_new_entries_count_at_once() -> None:
    image = EMPTY_IMAGE
    asked = AccessRules(lambda: image, super_users=frozenset(), open_by_default=False)
    assert not may(asked, Operation.READ)
    allowed = entry()
    image = replace(image, acls={allowed.id: allowed})
    assert may(asked, Operation.READ)
    image = EMPTY_IMAGE
    assert not may(asked, Operation.READ)


# ---- against the rule as it is written down, entry by entry

_NAMES = st.sampled_from(["*", "o", "or", "orders", "payments"])
_ENTRIES = st.builds(
    entry,
    _NAMES,
    operation=st.sampled_from([ALL_OPERATIONS, *Operation]),
    permission=st.sampled_from([ALLOW, DENY]),
    principal=st.sampled_from(["User:ann", "User:bob", "User:*"]),
    host=st.sampled_from(["*", "192.0.2.1", "192.0.2.2"]),
    pattern=st.sampled_from([LITERAL, PREFIXED]),
    kind=st.sampled_from([TOPIC, ResourceKind.GROUP]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_ENTRIES, max_size=8), st.sampled_from(list(Operation)), _NAMES, st.booleans())
def test_the_index_finds_what_looking_at_every_entry_finds(
    entries: list[AccessControlEntry], operation: Operation, name: str, open_by_default: bool
) -> None:
    # MATCH in a filter means the entries that apply to a name, which is told apart from them by other code.
    applies = EntryFilter(TOPIC, name, MATCH, None, None, ANY, ANY)
    about = [each for each in entries if applies.means(each)]
    mine = [each for each in about if each.principal in ("User:ann", "User:*") and each.host in ("*", "192.0.2.1")]
    meant = {operation, ALL_OPERATIONS}
    implied = set(meant)
    if operation is Operation.DESCRIBE:
        implied |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        implied |= {Operation.ALTER_CONFIGS}
    denied = any(each.permission_type == DENY and each.operation in meant for each in mine)
    allowed = any(each.permission_type == ALLOW and each.operation in implied for each in mine)
    expected = not denied and (allowed or (not about and open_by_default))
    assert may(rules(*entries, open_by_default=open_by_default), operation, name) is expected


# ---- entries and settings that make no sense


@pytest.mark.parametrize(
    "change",
    [
        {"kind": 0},
        {"kind": ANY},
        {"kind": 8},
        {"pattern": ANY},
        {"pattern": MATCH},
        {"operation": ANY},
        {"operation": 16},
        {"permission": ANY},
        {"permission": 4},
        {"principal": "ann"},
        {"kind": 4},
    ],
)
def test_entries_that_are_none(change: dict[str, int]) -> None:
    check_entry(entry())
    with pytest.raises(ApiError):
        check_entry(entry(**change))  # type: ignore[arg-type]
    with pytest.raises(ApiError):
        check_entry(entry(""))


def test_the_setting_names_the_authorizer() -> None:
    def authorizer(**properties: str) -> AccessRules | None:
        base = {"process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "C"}
        base |= {"listeners": "PLAINTEXT://:9092,C://:9093", "controller.quorum.voters": "1@localhost:9093"}
        base |= {"listener.security.protocol.map": "C:PLAINTEXT,PLAINTEXT:PLAINTEXT", "log.dirs": "/data"}
        named = {key.replace("_", "."): value for key, value in properties.items()}
        return authorizer_of(NodeConfig.load({**base, **named}), lambda: EMPTY_IMAGE)

    assert authorizer() is None
    with pytest.raises(ConfigError):
        authorizer(authorizer_class_name="com.example.Mine")
    made = authorizer(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:root; User:CN=a,O=b")
    assert made is not None
    assert may(made, Operation.READ, who="User:CN=a,O=b")
    assert not may(made, Operation.READ)


@pytest.mark.parametrize(
    ("entries", "allowed"),
    [
        ([], False),
        ([entry()], True),
        ([entry(principal="User:bob")], False),
        ([entry(host="192.0.2.2")], False),
        ([entry(operation=Operation.WRITE)], False),
        ([entry(operation=ALL_OPERATIONS)], True),
        ([entry(kind=ResourceKind.GROUP)], False),
        ([entry(), entry(permission=DENY)], False),
        ([entry(), entry("payments", permission=DENY)], True),
        ([entry(), entry("or", permission=DENY, pattern=PREFIXED)], False),
        ([entry(pattern=PREFIXED), entry(permission=DENY)], True),
        ([entry("*"), entry("o", permission=DENY, pattern=PREFIXED)], True),
        ([entry("*"), entry("*", permission=DENY, principal="User:*")], False),
    ],
)
def test_whether_anything_of_a_kind_is_allowed(entries: list[AccessControlEntry], allowed: bool) -> None:
    assert rules(*entries).allows_any("User:ann", "192.0.2.1", Operation.READ, TOPIC) == allowed
    assert rules(*entries).allows_any("User:root", "192.0.2.1", Operation.READ, TOPIC)
