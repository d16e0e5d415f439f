"""Image names as registries and runtimes write them. Pure text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

HUB = "docker.io"
_REFERENCE = re.compile(r"([^@]*?)(?::([\w][\w.-]{0,127}))?(?:@([a-z0-9+._-]+:[0-9a-fA-F]{32,}))?", re.ASCII)


class Reference(NamedTuple):
    """A whole name: `docker.io/library/nginx`, tag `latest` unless there is a digest."""

    repository: str
    tag: str
    digest: str

    @property
    def registry(self) -> str:
        return self.repository.partition("/")[0]

    @property
    def path(self) -> str:
        return self.repository.partition("/")[2]

    @property
    def familiar(self) -> str:
        """The repository as docker shows it: without its own registry's name."""
        return familiar(self.repository)

    def __str__(self) -> str:
        return self.repository + (f"@{self.digest}" if self.digest else f":{self.tag}")


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


def familiar(repository: str) -> str:
    return repository.removeprefix(f"{HUB}/").removeprefix("library/") if repository.startswith(f"{HUB}/") else repository
