"""`kafka-broker-api-versions`: which versions of which APIs each broker serves, and which this tool would use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.cli.kafka._common import open_admin
from moldau.cli.kafka._options import OptionParser, run

if TYPE_CHECKING:
    from moldau.client.connection import Connection


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    parser = OptionParser("kafka-broker-api-versions", "Show which versions of Kafka's APIs brokers serve.")
    parser.connection()
    options = parser.parse(argv)
    options.require("bootstrap-server")
    from moldau.client.admin.cluster import describe_cluster
    from moldau.client.errors import Disconnected, MoldauError

    with open_admin(options, "broker-api-versions-tool") as admin:
        for broker in describe_cluster(admin).brokers:
            name = f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {broker.rack or 'null'} isFenced: false)"
            try:
                connection = admin.node(broker.node_id)
            except (Disconnected, MoldauError) as error:
                print(f"{name} -> ERROR: {error}")
                continue
            print(f"{name} -> {versions_text(connection)}")
    return 0


def versions_text(connection: Connection) -> str:
    """One API a line: what the broker serves, and what would be used."""
    from moldau.protocol.api import API_TABLE

    lines = []
    for key in sorted(API_TABLE.keys() | connection.versions.keys()):
        spec = API_TABLE.get(key)
        if spec is not None and "broker" not in spec.listeners and key not in connection.versions:
            continue
        name = f"{spec.name}({key})" if spec is not None else f"UNKNOWN({key})"
        lines.append(f"\t{name}: {_range(connection, key)}")
    return "(\n" + ",\n".join(lines) + "\n)"


def _range(connection: Connection, key: int) -> str:
    from moldau.protocol.api import API_TABLE

    if key not in connection.versions:
        return "UNSUPPORTED"
    lowest, highest = connection.versions[key]
    served = str(lowest) if lowest == highest else f"{lowest} to {highest}"
    spec = API_TABLE.get(key)
    if spec is None:
        return served
    usable = min(highest, spec.max_version)
    return f"{served} [usable: {usable}]" if usable >= max(lowest, spec.min_version) else f"{served} [unusable]"


if __name__ == "__main__":
    raise SystemExit(main())
