"""`kafka-groups`: list groups of all types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError
from moldau.cli.kafka._common import open_admin
from moldau.cli.kafka._options import OptionParser, Options, run

if TYPE_CHECKING:
    from moldau.client.admin.groups import GroupListing

FILTERS = ("consumer", "share", "streams")
MIN_WIDTH = 20


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    _check(options)
    from moldau.client.admin.groups import list_groups
    from moldau.protocol.errors import ApiError

    with open_admin(options, "kafka-groups") as admin:
        try:
            groups = [each for each in list_groups(admin) if _passes(each, options)]
        except ApiError as error:
            print(f"Error while executing groups command : {error.message}")
            return 1
    rows = [(each.group_id, each.type, each.protocol) for each in groups]
    width = max([MIN_WIDTH, *(len(cell) for row in rows for cell in row)])
    print(" ".join(f"{title:<{width}}" for title in ("GROUP", "TYPE", "PROTOCOL")))
    for row in rows:
        print("".join(f"{cell:<{width}} " for cell in row))
    return 0


def _parser() -> OptionParser:
    parser = OptionParser("kafka-groups", "List groups of all types.")
    parser.connection()
    parser.flag("list", "List the groups.")
    parser.value("group-type", "TYPE", "Only groups of this type: classic, consumer, share or streams.")
    parser.value("protocol", "PROTOCOL", "Only groups with this protocol.")
    parser.flag(
        "consumer", "Only groups that consume: of type consumer, and classic ones with protocol consumer or none."
    )
    parser.flag("share", "Only share groups.")
    parser.flag("streams", "Only streams groups.")
    return parser


def _check(options: Options) -> None:
    from moldau.client.admin.groups import TYPES

    options.require("bootstrap-server")
    if not options.has("list"):
        raise options.error("Command must include exactly one action: --list.")
    given = options.value("group-type")
    if given is not None and given.lower() not in {each.lower() for each in TYPES}:
        raise CliError("--group-type must be a valid group type.", hint=f"Types: {', '.join(TYPES).lower()}.")
    for each in FILTERS:
        options.forbid(each, *(other for other in (*FILTERS, "group-type", "protocol") if other != each))


def _passes(group: GroupListing, options: Options) -> bool:
    from moldau.client.admin.groups import CONSUMER, CONSUMER_PROTOCOL, SHARE, STREAMS

    wanted_type, wanted_protocol = options.value("group-type"), options.value("protocol")
    if wanted_type is not None and group.type.lower() != wanted_type.lower():
        return False
    if wanted_protocol is not None and group.protocol != wanted_protocol:
        return False
    if options.has("consumer"):
        return group.type == CONSUMER or group.protocol in ("", CONSUMER_PROTOCOL)
    if options.has("share"):
        return group.type == SHARE
    if options.has("streams"):
        return group.type == STREAMS
    return True


if __name__ == "__main__":
    raise SystemExit(main())
