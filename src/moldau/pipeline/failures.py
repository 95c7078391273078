"""What a failed query's error means: one sentence instead of three stack traces, and whether trying again can help.

Spark hands on what happened in other processes as text only, so this reads text. When in doubt a failure is taken for
one that passes: a needless attempt costs seconds, giving up on a broker that restarts costs a pipeline.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# An exception of ours, as Python prints it at the end of a traceback: the class, then its sentence.
_OURS = re.compile(r"^(?:moldau\.[\w.]+\.)(\w+): (.+)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION_LINE = re.compile(r"^(?:[A-Za-z_][\w]*\.)*([A-Za-z_]\w*): ?(.*)$")
_QUERY_PREFIX = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ", re.DOTALL)
# What Py4J and Java put in front of an exception's own words.
_JAVA_PREFIX = re.compile(r"^An error occurred while calling [\w.]+\n: |^(?:[a-z][\w$]*\.)+[A-Z][\w$]*: ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+")
_CONDITION = re.compile(r"^\s*\[([A-Z0-9_.]+)\] ")

# Exceptions of ours after which the same query can only fail again.
_FINAL_CLASSES = frozenset({"FencedError", "DataLossError", "SchemaError"})
# The same for sentences of exceptions that may also be about something that passes.
_FINAL_SENTENCES = (
    "There is no topic",
    "There is no option",
    "Authentication failed",
    "SASL needs credentials",
    "belongs to another query",
    "the checkpoint was put back",
    "cannot be written: a sink takes",
    "holds no record of its earlier commits",
    "is not supported",
    "AUTHORIZATION_FAILED",
    "ot authorized",
)
# Mistakes in a program's text, as opposed to ones in the data it meets.
_FINAL_PYTHON = frozenset({"NameError", "ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError"})
_FINAL_CONDITIONS = (
    "UNRESOLVED",
    "PARSE_",
    "DATATYPE_MISMATCH",
    "STATE_STORE_KEY_SCHEMA",
    "STATE_STORE_VALUE_SCHEMA",
    "STATE_STORE_SCHEMA",
    "STREAMING_STATEFUL_OPERATOR",
    "INCOMPATIBLE",
    "UNSUPPORTED_",
)
# Behind an error in SQL Spark prints the plan as far as it had come.
_PLAN = re.compile(r";?\n'?[A-Z]\w+ .*|;?\n[:+]- .*", re.DOTALL)
# Where in a statement it was, for a message whose place is told in another way.
_PLACE_BEHIND = re.compile(r"\.?; line \d+ pos \d+$")
_LONGEST = 600


@dataclass(slots=True, frozen=True)
class Failure:
    """Why a query ended, for people, and whether it would end the same way again."""

    message: str
    permanent: bool


def explain(error: BaseException | str) -> Failure:
    """The failure that an exception of Spark, or its text, tells about.

    >>> explain("...\\nmoldau.client.errors.MoldauError: There is no topic 'clicks': check its name\\n SQLSTATE: 38000")
    Failure(message="There is no topic 'clicks': check its name", permanent=True)
    """
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        kind, sentence = ours[-1]
        sentence = _SQLSTATE.sub("", sentence).strip()
        final = kind in _FINAL_CLASSES or any(part in sentence for part in _FINAL_SENTENCES)
        return Failure(sentence, final)
    raised = _python_exception(text)
    if raised is not None:
        kind, sentence = raised
        return Failure(_shortened(f"{kind}: {sentence}" if sentence else kind), kind in _FINAL_PYTHON)
    plain = _SQLSTATE.sub("", _QUERY_PREFIX.sub("", text.strip()))
    while _JAVA_PREFIX.match(plain):
        plain = _JAVA_PREFIX.sub("", plain, count=1)
    plain = plain.split("\n\tat ")[0]
    condition = _CONDITION.match(plain)
    # Spark goes on with the query's plan; the first paragraph says what happened.
    sentence = _CONDITION.sub("", plain).split("\n=== Streaming Query ===")[0].split("\n\n")[0]
    sentence = _PLACE_BEHIND.sub("", _PLAN.sub("", sentence).strip())
    final = condition is not None and condition[1].startswith(_FINAL_CONDITIONS)
    return Failure(_shortened(sentence or type(error).__name__), final)


def _python_exception(text: str) -> tuple[str, str] | None:
    """The class and sentence of the exception that the last traceback in a text ends with."""
    at = text.rfind(_TRACEBACK)
    if at < 0:
        return None
    for line in text[at + len(_TRACEBACK) :].splitlines()[1:]:
        if line and not line.startswith((" ", "\t")):
            match = _EXCEPTION_LINE.match(line)
            return (match[1], _SQLSTATE.sub("", match[2]).strip()) if match else (line.strip(), "")
    return None


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
