"""Content negotiation: what a client accepts, and how its bodies are encoded."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from transom.machinery import errors
from transom.machinery.tables.partial import META_GROUP, META_VERSIONS

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
_MEDIA_TYPES = f"{JSON}, {YAML}, {PROTOBUF}"
_OFFERS = {JSON: JSON, YAML: YAML, PROTOBUF: PROTOBUF, "*/*": JSON, "*": JSON}
STREAM_TYPES = f"{JSON};stream=watch, {PROTOBUF};stream=watch"
_TRANSFORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")


class Form(NamedTuple):
    """How an answer should look."""

    media: str = JSON
    transform: str = ""  # "", Table, PartialObjectMetadata, PartialObjectMetadataList
    version: str = "v1"
    pretty: bool = False


# JSON like any other, but known by its identity: for callers in this process, to whom an object that is stored as they
# want it need not go as bytes.
AS_OBJECT = Form()


class Clause(NamedTuple):
    media: str
    params: dict[str, str]


@lru_cache(maxsize=512)
def clauses(accept: str) -> tuple[Clause, ...]:
    """The clauses of an Accept header, best first."""
    out: list[tuple[float, int, Clause]] = []
    for index, text in enumerate(accept.split(",")):
        media, *params = (part.strip() for part in text.split(";"))
        if not media:
            continue
        pairs = dict(p.partition("=")[::2] for p in params if p)
        try:
            quality = float(pairs.pop("q", "1") or 1)
        except ValueError:
            quality = 1.0
        out.append((-quality, index, Clause(media.lower(), pairs)))
    return tuple(c for _, _, c in sorted(out, key=lambda row: row[:2]))


@lru_cache(maxsize=512)
def negotiate(accept: str, transforms: bool = True, custom: bool = False, tables: bool = True) -> Form:
    """The form of an answer for an Accept header; 406 when we have none of what it asks for.

    JSON is what is stored, so protobuf goes only to those who take nothing else for the same thing. Custom kinds
    (`custom`) have no protobuf form, but their metadata has. Sub-resources and calls have no `tables`.
    """
    if not accept or accept == JSON or accept == "*/*":
        return Form()
    known = custom  # no router in front of custom kinds knows media types
    binary: Form | None = None
    for clause in clauses(accept):
        known = known or clause.media in _OFFERS
        media = _OFFERS.get(clause.media) or (JSON if custom and clause.media == "application/*" else "")
        if not media:
            continue
        form = Form(media)
        asked, group, version = (clause.params.get(k, "") for k in ("as", "g", "v"))
        if asked:
            if not transforms or (asked == "Table" and not tables):
                continue
            if asked not in _TRANSFORMS or group != META_GROUP or version not in META_VERSIONS:
                continue
            form = form._replace(transform=asked, version=version)
        if media == PROTOBUF:
            if form.transform != "Table" and (form.transform or not custom):
                binary = binary or form
        elif binary is None or (media == JSON and form[1:3] == binary[1:3]):
            return form._replace(pretty=clause.params.get("pretty", "") in ("1", "true"))
    if binary is not None:
        return binary
    # A media type we know in a form we do not have is refused in other words than a type we do not know.
    raise errors.no_such_form(_MEDIA_TYPES) if known else errors.not_acceptable()


def wants_pretty(query: dict[str, list[str]], agent: str) -> bool:
    """Asked for, or a person looking at it with curl, wget or a browser."""
    value = query.get("pretty")
    if value is not None:
        return value[0].lower() not in ("false", "0")
    return agent.startswith(("curl", "Wget", "Mozilla/5.0"))


def body_media(content_type: str) -> str:
    """The media type of a request body; absent means JSON."""
    media = content_type.partition(";")[0].strip().lower()
    if not media:
        return JSON
    if media in (JSON, YAML, PROTOBUF):
        return media
    raise errors.unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {_MEDIA_TYPES}"
    )
