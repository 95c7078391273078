"""What a Python worker of Spark has imported is left alone by the garbage collector.

Spark reuses its Python workers, and each of them looks for garbage after every task. With a compiler and a few large
libraries imported that takes longer than a small task itself (60 ms), and it competes with what Spark does next. What
is there after the first tasks will be there until the worker ends, so it is moved out of the collector's sight once;
what later tasks create is collected as before.
"""

from __future__ import annotations

import gc

# The first task imports and loads compiled code; the second one may be of another kind (a sink after a source).
SETTLING_TASKS = 2

_tasks_seen = 0


def settle() -> None:
    """Called at the end of every task and of every planning step; it does something in the first ones only."""
    global _tasks_seen
    if _tasks_seen < SETTLING_TASKS:
        _tasks_seen += 1
        gc.collect()
        gc.freeze()
