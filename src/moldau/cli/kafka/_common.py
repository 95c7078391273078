"""Pieces the Kafka commands share: opening the administration client, and Kafka's way of filtering topics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from moldau.cli import properties
from moldau.cli.errors import CliError
from moldau.cli.kafka._options import Options

if TYPE_CHECKING:
    from moldau.client.admin import Admin


def open_admin(options: Options, client_id: str, *, controllers: str | None = None) -> Admin:
    """The client of a command: like Kafka's tools it waits for the cluster instead of giving up at once."""
    from moldau.client.admin import Admin

    settings = properties.load(options.text("command-config")) if options.has("command-config") else {}
    if controllers is not None:
        return Admin(controllers, settings, client_id=client_id, patient=True, controllers=True)
    return Admin(options.text("bootstrap-server"), settings, client_id=client_id, patient=True)


class TopicFilter:
    """A topic name or regular expression as Kafka's tools take it: commas mean "or", quotes and blanks are dropped."""

    def __init__(self, text: str) -> None:
        cleaned = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
        try:
            self._pattern = re.compile(cleaned)
        except re.error:
            raise CliError(f"{cleaned} is an invalid regex.") from None

    def allows(self, name: str) -> bool:
        return self._pattern.fullmatch(name) is not None
