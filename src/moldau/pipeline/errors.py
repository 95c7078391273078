"""How running a program fails when it is somebody's mistake rather than ours: a sentence, and what to do."""

from __future__ import annotations

from moldau.client.errors import MoldauError


class PipelineError(MoldauError):
    """What is wrong with a pipeline and, where we know it, what to do about it."""
