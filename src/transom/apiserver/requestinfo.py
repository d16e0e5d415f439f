"""What a path asks for: verb, group, version, namespace, resource, name, sub-resource.

The same reading of the URL serves routing, authorization and audit, so that they cannot disagree.
"""

from __future__ import annotations

from typing import NamedTuple

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = {"status", "finalize"}


class RequestInfo(NamedTuple):
    is_resource: bool
    path: str
    verb: str  # Kubernetes' verb for resources, the lower-case method for other paths
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""  # what follows the sub-resource (proxy paths)
    selected_name: str = ""  # the name in a `metadata.name=` field selector, which counts for authorization


def parse(method: str, path: str, watch: bool = False) -> RequestInfo:
    """`watch` is the query parameter."""
    parts = path.split("/")[1:]
    if parts and not parts[-1]:
        parts.pop()
    plain = RequestInfo(False, path, method.lower())
    if not parts:
        return plain
    if parts[0] == "api":
        if len(parts) < 3:
            return plain
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis":
        if len(parts) < 4:
            return plain
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return plain

    verb = _VERBS.get(method, "")
    if rest[0] == "watch" and len(rest) > 1:  # the old form of watching: /api/v1/watch/...
        verb, rest = "watch", rest[1:]
    elif rest[0] == "proxy" and len(rest) > 1:
        verb, rest = "proxy", rest[1:]

    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    resource = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    tail = "/".join(rest[3:])
    if verb == "get" and not name:
        verb = "watch" if watch else "list"
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return RequestInfo(True, path, verb, group, version, namespace, resource, name, subresource, tail)
