"""Calls of the C library that Python has no name for. Loaded at their first use: most starts need few of them."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

# Names and numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
KEPT_FREE_BYTES = 48 << 20
MAPPED_FROM_BYTES = 4 << 20


@cache
def _library() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def keep_freed_memory() -> None:
    """Let the allocator keep what large answers used for the next ones.

    By default it gives a freed megabyte back to the system at once, and touching fresh pages costs more than all the
    rest of reading records into them. Elsewhere than on glibc nothing is changed.
    """
    set_option = getattr(_library(), "mallopt", None)
    if set_option is not None:
        set_option(_M_TRIM_THRESHOLD, KEPT_FREE_BYTES)
        set_option(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)


def sync_file_system(path: str) -> None:
    """Write back everything on the file system that holds `path`."""
    sync = getattr(_library(), "syncfs", None)
    if sync is None:
        # Elsewhere than on Linux: all file systems, which includes it.
        os.sync()
        return
    import ctypes

    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if sync(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
    finally:
        os.close(fd)
