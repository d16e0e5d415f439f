"""The image pull policy, derived from the image name.

A container without imagePullPolicy gets `Always` for the tag `latest` (explicit or implied) and
`IfNotPresent` for anything else, including names that no registry accepts.
"""

from __future__ import annotations

import re

from transom.kit.caching import text_cache
from transom.kit.lazy import lazy_pattern

# A name's component may also be read with empty separators; this form accepts the same words in
# linear time.
_COMPONENT = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_DOMAIN_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_NAME = rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*(?::[0-9]+)?/)?{_COMPONENT}(?:/{_COMPONENT})*"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = lazy_pattern(rf"({_NAME})(?::(\w[\w.-]{{0,127}}))?(?:@({_DIGEST}))?\Z", re.ASCII)
_IMAGE_ID = lazy_pattern(r"[a-f0-9]{64}\Z")
_DIGESTS = {
    "sha256": re.compile(r"[a-f0-9]{64}\Z"),
    "sha384": re.compile(r"[a-f0-9]{96}\Z"),
    "sha512": re.compile(r"[a-f0-9]{128}\Z"),
}
_NAME_LIMIT = 255
_HUB = "docker.io"


@text_cache(1024)
def default_pull_policy(image: str) -> str:
    return "Always" if image_tag(image) == "latest" else "IfNotPresent"


def image_tag(image: str) -> str:
    """The tag: as written, `latest` without tag and digest, empty if the name is malformed."""
    if not image or _IMAGE_ID.match(image):
        return ""
    first, slash, rest = image.partition("/")
    if not slash or ("." not in first and ":" not in first and first != "localhost"):
        first, rest = _HUB, image
    elif first == "index.docker.io":
        first = _HUB
    if first == _HUB and "/" not in rest:
        rest = "library/" + rest
    name = rest.split(":", 1)[0]
    found = _REFERENCE.match(f"{first}/{rest}")
    if found is None or name.lower() != name or len(found[1]) > _NAME_LIMIT:
        return ""
    written, digest = found[2], found[3]
    if digest:
        algorithm, _, encoded = digest.partition(":")
        if algorithm not in _DIGESTS or not _DIGESTS[algorithm].match(encoded):
            return ""
        return written or ""
    return written or "latest"
