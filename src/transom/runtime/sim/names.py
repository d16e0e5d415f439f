"""Image names as the simulated runtimes take them: whatever it is, it is a name; kubelets have refused the others."""

from __future__ import annotations

import re
from functools import lru_cache

from transom.runtime.images.reference import HUB, Reference, familiar

__all__ = ["HUB", "Reference", "familiar", "parse"]

_REFERENCE = re.compile(r"([^@]*?)(?::([\w][\w.-]{0,127}))?(?:@([a-z0-9+._-]+:[0-9a-fA-F]{32,}))?", re.ASCII)


@lru_cache(maxsize=4096)
def parse(image: str) -> Reference:
    match = _REFERENCE.fullmatch(image)
    name, tag, digest = match.groups() if match else (image, None, None)
    first, slash, rest = name.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        first, rest = HUB, name
    if first == "index.docker.io":
        first = HUB
    if first == HUB and "/" not in rest:
        rest = f"library/{rest}"
    return Reference(f"{first}/{rest}", "" if digest else tag or "latest", digest or "")
