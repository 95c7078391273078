"""How the node logs: one readable line an event, with its facts as key=value, or JSON for machines.

`MOLDAU_LOG=debug` raises the level, `MOLDAU_LOG_FORMAT=json` changes the form.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        room = record.name.removeprefix("moldau.")
        text = f"{when}.{int(record.msecs):03d} {record.levelname:<7} {room:<12} {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def set_up_logging(level: str | None = None, form: str | None = None) -> None:
    handler = logging.StreamHandler(sys.stderr)
    form = form or os.environ.get("MOLDAU_LOG_FORMAT", "plain")
    handler.setFormatter(_Json() if form == "json" else _Plain())
    root = logging.getLogger("moldau")
    root.handlers[:] = [handler]
    root.setLevel((level or os.environ.get("MOLDAU_LOG", "info")).upper())
    root.propagate = False
