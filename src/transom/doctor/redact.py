"""Takes out of texts and objects what nobody else may know: passwords, tokens, keys. Rather too much than too little."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

MASK: Final = "[redacted]"
_SECRET: Final = r"(?:password|passwd|pwd|token|secret|credentials?|api[-_]?key|access[-_]?key|private[-_]?key|client-key-data)"
_NAMED: Final = re.compile(rf"(?i){_SECRET}$|authorization$|^{_SECRET}(?!name$)")
_DROPPED: Final = ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")
_MAYBE: Final = re.compile(rf"(?i){_SECRET}|bearer|basic|private key|eyJ|:[^/\s@]+@|\.[a-z0-9]{{16}}\b")  # any of the rules
_RULES: Final = tuple((re.compile(pattern, flags), to) for pattern, flags, to in (
    (r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL, MASK),
    (r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?", 0, MASK),  # JSON web tokens
    (r"\b(Bearer|Basic)\s+[\w+/=.~-]{6,}", re.IGNORECASE, rf"\1 {MASK}"),
    (r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)", 0, MASK),
    (r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b", 0, MASK),  # bootstrap tokens
    (rf"([\w.-]*{_SECRET}[\"']?\s*[:=]\s*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',;&]+)", re.IGNORECASE, rf"\1{MASK}"),
    (rf"(--[\w-]*{_SECRET}\s+)([^\s-]\S*)", re.IGNORECASE, rf"\1{MASK}"),
))  # fmt: skip


def text(content: str) -> str:
    if not _MAYBE.search(content):
        return content
    for pattern, to in _RULES:
        content = pattern.sub(to, content)
    return content


def value(found: Any, name: str = "") -> Any:
    """An object, copied: without the data of Secrets, values of variables and fields that are named like secrets, and what
    repeats the whole object in another shape."""
    if isinstance(found, Mapping):
        if found.get("kind") == "Secret":
            found = {key: MASK if key in ("data", "stringData") else inner for key, inner in found.items()}
        if isinstance(found.get("value"), str) and _NAMED.search(str(found.get("name", ""))):
            found = {**found, "value": MASK}
        return {key: value(inner, str(key)) for key, inner in found.items() if key not in _DROPPED}
    if isinstance(found, list | tuple):
        return [value(inner, name) for inner in found]
    if isinstance(found, str):
        return MASK if found and _NAMED.search(name) else text(found)
    return found
