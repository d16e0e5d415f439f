"""The attributes of a request: verb, group, version, namespace, resource, name and subresource.

They determine three things that must never disagree: what is authorized, which handler runs, and
which objects that handler may access. They are computed once, like Kubernetes' RequestInfoFactory
does, and are immutable. Handlers require an `Authorized` value, which only the authorization chain
creates.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NewType

from transom.kit.named_tuple import NamedTuple
from transom.machinery import field_selectors, selectors

_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_SPECIAL_VERBS = ("watch", "proxy")  # the first path segment of the deprecated forms of these verbs
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_INTEGERS = ("limit", "timeoutSeconds")
_LONGEST_CACHED = 512
_ANY = "*"  # stands for the names of objects
Query = Mapping[str, list[str]]


class UnknownRequest(Exception):
    """A path with a known verb but no known resource; Kubernetes returns 500 before it
    authenticates.
    """


class RequestInfo(NamedTuple):
    is_resource: bool
    path: str
    verb: str  # Kubernetes' verb for resources, the lower-case method for other paths
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""  # of the path, or of the `metadata.name=` field selector of a list or watch
    subresource: str = ""
    rest: str = ""  # the path after the subresource (proxy paths)
    # The shape of the path, for routing: how many segments start with the resource, whether
    # `namespaces/NAMESPACE/` precedes it, and whether the path starts with `watch/` or `proxy/`.
    depth: int = 0
    namespaced: bool = False
    special: bool = False
    fields: str = ""  # the field selector of a list, watch or deletecollection
    labels: str = ""  # its label selector


Authorized = NewType("Authorized", RequestInfo)
"""Authorized attributes. Only `authorization.chain` creates them; every handler requires them."""


def parse_request_info(method: str, path: str, query: Query | None = None) -> RequestInfo:
    """The attributes of a request; raises UnknownRequest."""
    if len(path) > _LONGEST_CACHED:
        return _parse(method, path, query)
    collection, _, name = path.rpartition("/")
    found = _parse_any_object(method, collection)
    if found is not None and name:  # the query does not matter for one object
        return tuple.__new__(RequestInfo, (True, path, *found[2:7], name, *found[8:]))
    return _parse(method, path, query) if query else _parse_plain(method, path)


@lru_cache(1024)
def _parse_plain(method: str, path: str) -> RequestInfo:
    """Creates of a kind, and the writes of components to one object, repeat their paths."""
    return _parse(method, path, None)


@lru_cache(1024)
def _parse_any_object(method: str, collection: str) -> RequestInfo | None:
    """The attributes that all objects of a collection share: most requests are about one object.
    None if the last segment of such a path is not only the name of an object.
    """
    try:
        info = _parse(method, f"{collection}/{_ANY}", None)
    except UnknownRequest:
        return None
    is_plain = info.depth == 2 and not info.special and info.name == _ANY
    return info if is_plain and info.namespace != _ANY else None


def _parse(method: str, path: str, query: Query | None) -> RequestInfo:
    parts = path.strip("/").split("/")
    count = len(parts)
    if count < 3:
        return RequestInfo(False, path, method.lower())
    if parts[0] == "api":
        group, version, first = "", parts[1], 2
    elif parts[0] == "apis" and count > 3:
        group, version, first = parts[1], parts[2], 3
    else:
        return RequestInfo(False, path, method.lower())

    special = parts[first] in _SPECIAL_VERBS
    if special:
        verb = parts[first]
        first += 1
        if first == count:
            raise UnknownRequest("unable to determine kind and namespace from url")
    else:
        verb = _VERBS.get(method, "")

    namespace, namespaced = "", False
    if parts[first] == "namespaces" and count > first + 1:
        namespace = parts[first + 1]
        if count > first + 2 and parts[first + 2] not in _NAMESPACE_SUBRESOURCES:
            first += 2
            namespaced = True
    depth = count - first
    name = parts[first + 1] if depth > 1 else ""
    subresource = parts[first + 2] if depth > 2 and verb != "proxy" else ""
    rest = "/".join(parts[first + 3 :]) if depth > 3 else ""
    fields = labels = ""
    if not name:
        if query:
            fields = _first(query, "fieldSelector")
            labels = _first(query, "labelSelector")
        if verb == "get":
            verb = "list"
            if query:
                if _is_true(query, "watch"):
                    verb = "watch"
                name = selected_name(query)
        elif verb == "delete":
            verb = "deletecollection"
    return RequestInfo(
        True,
        path,
        verb,
        group,
        version,
        namespace,
        parts[first],
        name,
        subresource,
        rest,
        depth,
        namespaced,
        special,
        fields,
        labels,
    )


def _first(query: Query, name: str) -> str:
    texts = query.get(name)
    return texts[0] if texts else ""


def selected_name(query: Query) -> str:
    """The name in the field selector of a list or watch; it is authorized.

    Invalid options count as no options: the handler rejects them later.
    """
    texts = query.get("fieldSelector")
    if not texts:
        return ""
    try:
        name = field_selectors.parse_fields(texts[0]).exact("metadata.name") or ""
        if not name or not is_path_segment(name):
            return ""
        if labels := query.get("labelSelector"):
            selectors.parse_labels(labels[0])
    except selectors.SelectorError:
        return ""
    for option in _INTEGERS:
        values = query.get(option)
        if values and not _is_int64(values[0]):
            return ""
    return name


def is_path_segment(name: str) -> bool:
    """Whether `name` can be one path segment, as all object names are."""
    return name not in (".", "..") and "/" not in name and "%" not in name


def _is_int64(text: str) -> bool:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits.lstrip("0")) > 19:
        return False
    return -(1 << 63) <= int(text) < 1 << 63


def _is_true(query: Query, name: str) -> bool:
    values = query.get(name)
    return values is not None and values[0].lower() not in ("false", "0")
