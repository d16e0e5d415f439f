"""Image names as a container registry client reads them: what is valid, where the tag is, whose registry is meant.

Pure text. The errors are the ones people see in InvalidImageName.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_DOMAIN_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*(?::[0-9]+)?"
_NAME = rf"(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*"
_TAG = r"\w[\w.-]{0,127}"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = re.compile(rf"({_NAME})(?::({_TAG}))?(?:@({_DIGEST}))?", re.ASCII)
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")
_DIGEST_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}
_LONGEST_NAME = 255
# Longer ones only make the expression above slow.
_LONGEST = 4096

DEFAULT_REGISTRY = "docker.io"


class ImageNameError(ValueError):
    """`str()` is the registry client's text."""


class ImageName(NamedTuple):
    repository: str  # whole: docker.io/library/nginx
    tag: str
    digest: str


@lru_cache(maxsize=1024)
def parse(text: str) -> ImageName:
    if _IDENTIFIER.fullmatch(text):
        raise ImageNameError(f"invalid repository name ({text}), cannot specify 64-byte hexadecimal strings")
    domain, rest = _split(text)
    path = rest.partition(":")[0]
    if path.lower() != path:
        raise ImageNameError("invalid reference format: repository name must be lowercase")
    whole = f"{domain}/{rest}"
    found = _REFERENCE.fullmatch(whole) if len(whole) <= _LONGEST else None
    if found is None:
        if len(whole) <= _LONGEST and _REFERENCE.fullmatch(whole.lower()):
            raise ImageNameError("repository name must be lowercase")
        raise ImageNameError("invalid reference format")
    repository, tag, digest = found.groups("")
    if len(repository) > _LONGEST_NAME:
        raise ImageNameError(f"repository name must not be more than {_LONGEST_NAME} characters")
    if digest:
        _check_digest(digest)
    return ImageName(repository, tag, digest)


def with_default_tag(text: str) -> str:
    """The name as it stands, with `:latest` where it has neither tag nor digest."""
    name = parse(text)
    return text if name.tag or name.digest else text + ":latest"


def _split(text: str) -> tuple[str, str]:
    """The registry and the rest; names without a registry are the default one's."""
    first, slash, rest = text.partition("/")
    if not slash or ("." not in first and ":" not in first and first != "localhost"):
        first, rest = DEFAULT_REGISTRY, text
    elif first == "index.docker.io":
        first = DEFAULT_REGISTRY
    if first == DEFAULT_REGISTRY and "/" not in rest:
        rest = "library/" + rest
    return first, rest


def _check_digest(digest: str) -> None:
    algorithm, _, hexadecimal = digest.partition(":")
    length = _DIGEST_LENGTHS.get(algorithm)
    if length is None and algorithm.lower() == algorithm:
        raise ImageNameError("unsupported digest algorithm")
    if length is not None and len(hexadecimal) != length:
        raise ImageNameError("invalid checksum digest length")
    if digest.lower() != digest:
        raise ImageNameError("invalid checksum digest format")
