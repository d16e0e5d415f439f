"""Image names as pods write them. The registry client parses them, the same way for all nodes."""

from __future__ import annotations

from transom.runtime.images.reference import ImageNameError
from transom.runtime.images.reference import split_reference as parse

__all__ = ["ImageNameError", "parse", "with_default_tag"]


def with_default_tag(text: str) -> str:
    """The name as written, with `:latest` where it has neither tag nor digest."""
    name = parse(text)
    return text if name.tag or name.digest else text + ":latest"
