"""Image names in the simulated runtimes: any string is accepted, because kubelets reject invalid
ones.
"""

from __future__ import annotations

import re
from functools import lru_cache

from transom.kit.lazy import lazy_pattern
from transom.runtime.images.reference import HUB, ImageReference, familiar_name

__all__ = ["HUB", "ImageReference", "familiar_name", "parse_image_name"]

_REFERENCE = lazy_pattern(
    r"([^@]*?)(?::([\w][\w.-]{0,127}))?(?:@([a-z0-9+._-]+:[0-9a-fA-F]{32,}))?", re.ASCII
)


@lru_cache(maxsize=4096)
def parse_image_name(image: str) -> ImageReference:
    match = _REFERENCE.fullmatch(image)
    name, tag, digest = match.groups() if match else (image, None, None)
    first, slash, rest = name.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        first, rest = HUB, name
    if first == "index.docker.io":
        first = HUB
    if first == HUB and "/" not in rest:
        rest = f"library/{rest}"
    return ImageReference(f"{first}/{rest}", "" if digest else tag or "latest", digest or "")
