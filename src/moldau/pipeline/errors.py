"""How running a program fails when it is somebody's mistake rather than ours: a sentence, and what to do."""

from __future__ import annotations


class PipelineError(Exception):
    """What is wrong and, where we know it, what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
