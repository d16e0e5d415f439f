"""RuntimeClasses that Docker does not know."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene


def find(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        name = workload.spec.get("runtimeClassName")
        known = scene.runtime_classes(name) if isinstance(name, str) and name else None
        handler = known.get("handler") if known is not None else None
        if isinstance(handler, str) and handler and handler != "docker":
            yield Found(workload.obj, workload.at("runtimeClassName"), f"RuntimeClass {name} asks for the handler {handler}")


RULE = Rule("runtime-handler", find)
