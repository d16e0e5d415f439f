"""Image references as docker parses them: validity, registry, tag and digest. Pure text.

The errors are what users see in InvalidImageName.
"""

from __future__ import annotations

import re
from functools import lru_cache

from transom.kit.lazy import lazy_pattern
from transom.kit.named_tuple import NamedTuple

HUB = "docker.io"

_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_DOMAIN_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*(?::[0-9]+)?"
_NAME = rf"(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*"
_TAG = r"\w[\w.-]{0,127}"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = lazy_pattern(rf"({_NAME})(?::({_TAG}))?(?:@({_DIGEST}))?", re.ASCII)
_IDENTIFIER = lazy_pattern(r"[a-f0-9]{64}")
_ID = lazy_pattern(r"(?:sha256:)?([a-f0-9]{64})")
_DIGEST_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}
_LONGEST_NAME = 255
# Longer names only make the regular expression above slow.
_LONGEST = 4096


class ImageNameError(ValueError):
    """`str()` is the registry client's text."""


class ImageReference(NamedTuple):
    """A full reference. `tag` is empty when the name has none; see `parse_reference` for the
    default.
    """

    repository: str  # docker.io/library/nginx
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
        """The repository as docker displays it: without docker.io."""
        return familiar_name(self.repository)

    def __str__(self) -> str:
        return self.repository + (f"@{self.digest}" if self.digest else f":{self.tag}")


def familiar_name(repository: str) -> str:
    return (
        repository.removeprefix(f"{HUB}/").removeprefix("library/")
        if repository.startswith(f"{HUB}/")
        else repository
    )


@lru_cache(maxsize=1024)
def split_reference(text: str) -> ImageReference:
    """The parts of a name; raises ImageNameError when it is invalid."""
    if _IDENTIFIER.fullmatch(text):
        raise ImageNameError(
            f"invalid repository name ({text}), cannot specify 64-byte hexadecimal strings"
        )
    domain, rest = _registry(text)
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
    return ImageReference(repository, tag, digest)


@lru_cache(maxsize=1024)
def parse_reference(text: str) -> ImageReference:
    """What a runtime pulls: the tag `latest` where there is neither tag nor digest; with a digest,
    the tag is ignored.
    """
    found = split_reference(text)
    return found._replace(tag="" if found.digest else found.tag or "latest")


def image_id(text: str) -> str:
    """`sha256:...` when the text can be an image id, with or without the algorithm prefix;
    otherwise empty.
    """
    match = _ID.fullmatch(text)
    return f"sha256:{match[1]}" if match else ""


def _registry(text: str) -> tuple[str, str]:
    """The registry and the rest; names without a registry use the default one."""
    first, slash, rest = text.partition("/")
    if not slash or ("." not in first and ":" not in first and first != "localhost"):
        first, rest = HUB, text
    elif first == "index.docker.io":
        first = HUB
    if first == HUB and "/" not in rest:
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
