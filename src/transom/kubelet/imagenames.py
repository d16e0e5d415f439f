"""Image names as pods write them. How a name is read is the registry client's knowledge, and the same for everybody."""

from __future__ import annotations

from transom.runtime.images.reference import ImageNameError
from transom.runtime.images.reference import split as parse

__all__ = ["ImageNameError", "parse", "with_default_tag"]


def with_default_tag(text: str) -> str:
    """The name as it stands, with `:latest` where it has neither tag nor digest."""
    name = parse(text)
    return text if name.tag or name.digest else text + ":latest"
