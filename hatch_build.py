"""Builds the wheel, with the way of a record compiled to C when `MOLDAU_NATIVE=1` says so.

mypyc compiles the very modules that run uncompiled everywhere else: one source, two ways to run it, the same tests. A
small request costs a fifth to two fifths less then. Without the variable, and for an installation that can be
edited, nothing is compiled and no C compiler is needed.

The results are made under build/ and go into the wheel from there. They must never stand beside the sources: Python
would load them in place of what somebody edits.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "MOLDAU_NATIVE"

# What a record and a commit pass on their way. Left out on purpose: what runs rarely, and what mypyc cannot take:
# data classes with type variables or with types that are imported for the type checker only, nested generators, and
# classes from which others inherit that are not compiled.
COMPILED = {
    "": "ports",
    "protocol": "api frames uuids wire",
    "protocol/generated/wire": "fetch_request fetch_response offset_commit_request offset_commit_response",
    "records": "batch builder compression control record validation",
    "log": "append_checks batch_append config leader_epochs offset_index partition_log producer_state readable_log "
    "repetitions segment sparse_index time_index",
    "replication": "fetcher in_sync leader_state partition partition_table replicas",
    "coordinator": "decision hashing runtime timers",
    "coordinator/group": "offset_commits offset_records offset_store shard",
    "broker": "broker context coordinators fetch fetch_answer fetch_partition fetch_session group_offsets produce "
    "request_metrics router session_watch",
    "node": "alertness buffers clock connection disk peers",
}


class NativeHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or os.environ.get(VARIABLE) != "1":
            return
        built = Path(self.root, "build", "native")
        for library in compile_modules(built):
            build_data["force_include"][str(library)] = str(library.relative_to(built / "lib"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def compile_modules(built: Path) -> list[Path]:
    """The libraries that take the place of the modules, made with the C compiler of this machine."""
    # Only who compiles needs these.
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    modules = [
        str(Path("src/moldau", room, f"{name}.py")) for room, names in COMPILED.items() for name in names.split()
    ]
    # Build backends run in the root of the project, and mypyc names the modules by their paths from there.
    extensions = mypycify(
        ["--config-file=pyproject.toml", *modules],
        opt_level="2",
        debug_level="0",
        multi_file=True,
        target_dir=str(built / "c"),
    )
    command = build_ext(Distribution({"ext_modules": extensions, "package_dir": {"": "src"}}))
    command.build_lib = str(built / "lib")
    command.build_temp = str(built / "objects")
    command.ensure_finalized()
    command.run()
    return [Path(library) for library in command.get_outputs()]
