"""Recursive read-only mounts: what is mounted below a volume is read-only, too."""

from __future__ import annotations

from transom.kit.goquote import go_quote
from transom.machinery.objects import Object


def is_recursively_read_only(mount: Object, *, supported: bool) -> bool:
    """Of a volumeMount, on a node whose runtime has such mounts or not. Raises ValueError."""
    mode = mount.get("recursiveReadOnly") or "Disabled"
    if mode == "Disabled":
        return False
    propagation = mount.get("mountPropagation") or "None"
    if not mount.get("readOnly"):
        problem = "it is not read-only"
    elif propagation != "None":
        problem = f"it is not compatible with propagation {go_quote(propagation)}"
    elif mode == "Enabled" and not supported:
        problem = "it is not supported by the runtime"
    else:
        return supported
    name = go_quote(mount["name"])
    raise ValueError(f"volume {name} requested recursive read-only mode, but {problem}")
