"""Properties files given on a command line, with errors that name the file."""

from __future__ import annotations

from moldau.cli.errors import CliError
from moldau.config.properties import PropertiesError, read_properties


def load(path: str) -> dict[str, str]:
    """The settings of a properties file; a later line wins over an earlier one."""
    try:
        with open(path, "rb") as file:
            return read_properties(file.read())
    except OSError as error:
        raise CliError(f"Cannot read {path}: {error.strerror}") from None
    except PropertiesError as error:
        raise CliError(f"Cannot read {path}: {error}") from None
