"""hatchling's build hook: adds the man pages and shell completions that `make man` has written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHARED = "build/share"


class SharedFilesHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """A wheel that is built without them, for example by `pip install .`, works the same."""
        if version == "editable":
            return
        shared = Path(self.root) / SHARED
        for path in sorted(shared.rglob("*")):
            if path.is_file():
                target = f"share/{path.relative_to(shared).as_posix()}"
                build_data["shared_data"][str(path)] = target
