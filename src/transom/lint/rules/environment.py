"""Environment variables whose names differ in case only."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule, listed
from transom.lint.scene import Scene


def find(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        for steps, container in workload.containers():
            seen: dict[str, str] = {}
            for i, variable in enumerate(listed(container.get("env"))):
                name = variable.get("name") if isinstance(variable, dict) else None
                if not isinstance(name, str):
                    continue
                first = seen.setdefault(name.lower(), name)
                if first != name:
                    yield Found(workload.obj, (*steps, "env", i), f"{name} and {first} are one variable on Windows")


RULE = Rule("env-case", find)
