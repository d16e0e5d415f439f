"""Content negotiation: accepted response formats, and the encoding of bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from transom.apiserver.core.bodies import JSON, MEDIA_TYPES, PROTOBUF, YAML
from transom.apiserver.core.resources import Resource
from transom.kit.caching import text_cache
from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.machinery import errors
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour

if TYPE_CHECKING:
    from transom.machinery.tables import partial
else:
    partial = lazy_import("transom.machinery.tables.partial")

_OFFERS = {JSON: JSON, YAML: YAML, PROTOBUF: PROTOBUF, "*/*": JSON, "*": JSON}
STREAM_TYPES = f"{JSON};stream=watch, {PROTOBUF};stream=watch"
_TRANSFORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")


class OutputForm(NamedTuple):
    """The format of a response."""

    media: str = JSON
    transform: str = ""  # "", Table, PartialObjectMetadata, PartialObjectMetadataList
    version: str = "v1"
    pretty: bool = False


PLAIN = OutputForm()


class AcceptClause(NamedTuple):
    media: str
    params: dict[str, str]


@text_cache(512)
def accept_clauses(accept: str) -> tuple[AcceptClause, ...]:
    """The clauses of an Accept header, best first."""
    out: list[tuple[float, int, AcceptClause]] = []
    for index, text in enumerate(accept.split(",")):
        media, *params = (part.strip() for part in text.split(";"))
        if not media:
            continue
        pairs = dict(p.partition("=")[::2] for p in params if p)
        try:
            quality = float(pairs.pop("q", "1") or 1)
        except ValueError:
            quality = 1.0
        out.append((-quality, index, AcceptClause(media.lower(), pairs)))
    return tuple(c for _, _, c in sorted(out, key=lambda row: row[:2]))


_REPRESENTATIONS = f"{JSON}, {YAML}, {PROTOBUF}"


@text_cache(512)
def negotiate(
    accept: str,
    transforms: bool = True,
    custom: bool = False,
    tables: bool = True,
    available: str = "",
) -> OutputForm:
    """The response format for an Accept header; 406 if none is supported.

    JSON is the stored form, so protobuf is used only for clients that accept nothing else. Custom
    kinds (`custom`) have no protobuf form, but their metadata has. Subresources and calls have no
    `tables`.
    """
    if not accept or accept == JSON or accept == "*/*":
        return OutputForm()
    known = custom  # as in Kubernetes, custom kinds have no media type check before this
    binary: OutputForm | None = None
    for clause in accept_clauses(accept):
        known = known or clause.media in _OFFERS
        media = _OFFERS.get(clause.media) or (
            JSON if custom and clause.media == "application/*" else ""
        )
        if not media:
            continue
        form = OutputForm(media)
        requested, group, version = (clause.params.get(k, "") for k in ("as", "g", "v"))
        if requested:
            if not transforms or (requested == "Table" and not tables):
                continue
            if (
                requested not in _TRANSFORMS
                or group != partial.META_GROUP
                or version not in partial.META_VERSIONS
            ):
                continue
            form = form._replace(transform=requested, version=version)
        if media == PROTOBUF:
            if form.transform != "Table" and (form.transform or not custom):
                binary = binary or form
        elif binary is None or (media == JSON and form[1:3] == binary[1:3]):
            return form._replace(pretty=clause.params.get("pretty", "") in ("1", "true"))
    if binary is not None:
        return binary
    # An unsupported form of a known media type has a different error than an unknown type.
    raise errors.no_such_form(MEDIA_TYPES) if known else errors.not_acceptable(available)


_STATUS_WITHOUT_TABLES = frozenset(
    ("apiextensions.k8s.io", "apiregistration.k8s.io", "resource.k8s.io", "scheduling.k8s.io")
)


def shows_tables(res: Resource, subresource: str) -> bool:
    """Whether the path can be shown as a Table."""
    if not subresource:
        return res.custom or "list" in res.verbs
    if subresource == "status" and not res.custom and res.group in _STATUS_WITHOUT_TABLES:
        return False
    return res.custom or (
        subresource in ("scale", "status") and has_behaviour(res.release, "SubresourceTables")
    )


def available_forms(release: Release, verb: str) -> str:
    """The media types that errors of requests for built-in kinds list since 1.25."""
    if not has_behaviour(release, "RepresentationsInErrors"):
        return ""
    if verb in ("list", "watch"):
        return f"{_REPRESENTATIONS}, {JSON};stream=watch, {PROTOBUF};stream=watch"
    return _REPRESENTATIONS


def wants_pretty(query: Mapping[str, list[str]], agent: str) -> bool:
    """Requested, or a user with curl, wget or a browser."""
    value = query.get("pretty")
    if value is not None:
        return value[0].lower() not in ("false", "0")
    return agent.startswith(("curl", "Wget", "Mozilla/5.0"))
