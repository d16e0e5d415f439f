"""Kubernetes' sample API server: flunders and fischers of wardle.example.com, behind an APIService.

Objects are kept in memory, in version v1alpha1 only. A watch answers with the events that have
happened, or waits for the next one, and ends; clients then watch again. The API server in front of
it has authorized a request; one without the headers of that server is anonymous and refused.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from transom.kit.clock import rfc3339
from transom.kit.uuids import random_uuid
from transom.machinery import errors, field
from transom.machinery.errors import ApiError, GroupResource
from transom.machinery.field_selectors import parse_fields
from transom.machinery.jsonpatch import json_patch
from transom.machinery.mergepatch import merge_patch
from transom.machinery.selectors import SelectorError, parse_labels
from transom.userland.api import Program, ProgramContext
from transom.userland.servers import agnhost_tls
from transom.userland.servers.base import ServerProgram
from transom.userland.servers.http import (
    ProgramHttpRequest,
    ProgramHttpResponse,
    program_text_response,
)

Object = dict[str, Any]

_GROUP: Final = "wardle.example.com"
_VERSION: Final = "v1alpha1"
_API_VERSION: Final = f"{_GROUP}/{_VERSION}"
_HEALTH: Final = frozenset(("/healthz", "/livez", "/readyz"))
_EVENTS: Final = 1000  # that a watch can start before
_WATCH_SECONDS: Final = 1800.0
_MOST_OBJECTS: Final = 10_000
_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


class _Resource(NamedTuple):
    kind: str
    namespaced: bool


_RESOURCES: Final = {
    "fischers": _Resource("Fischer", False),
    "flunders": _Resource("Flunder", True),
}


class _Event(NamedTuple):
    revision: int
    type: str
    resource: str
    obj: Object


class _Target(NamedTuple):
    """What a request is about."""

    resource: str
    namespace: str
    name: str
    subresource: str

    @property
    def row(self) -> _Resource:
        return _RESOURCES[self.resource]

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(_GROUP, self.resource)


class SampleApiServer:
    def __init__(self, context: ProgramContext) -> None:
        self._context = context
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._revision = 1
        self._events: list[_Event] = []
        self._forgotten = 1  # the revision up to which events are no longer kept
        self._waiters: set[asyncio.Future[None]] = set()

    async def handle(self, request: ProgramHttpRequest) -> ProgramHttpResponse:
        if request.path in _HEALTH:
            return program_text_response("ok")
        try:
            return await self._answer(request)
        except ApiError as error:
            return _json(error.status(), error.code)

    async def _answer(self, request: ProgramHttpRequest) -> ProgramHttpResponse:
        _check_user(request)
        document = _DISCOVERY.get(request.path.rstrip("/"))
        if document is not None:
            return _json(document)
        target = _target_of(request.path)
        if target is None:
            raise errors.generic_not_found()
        if request.method == "GET" and not target.name:
            if request.query.get("watch") in ("1", "true"):
                return await self._watch(request, target)
            return self._list(request, target)
        act = _ACTIONS.get((request.method, bool(target.name)))
        if act is None or (target.subresource and request.method in ("POST", "DELETE")):
            raise errors.generic_method_not_allowed()
        return act(self, request, target)

    # ---- reads ----

    def _get(self, request: ProgramHttpRequest, target: _Target) -> ProgramHttpResponse:
        return _shown(request, self._existing(target))

    def _existing(self, target: _Target) -> Object:
        found = self._objects.get((target.resource, target.namespace, target.name))
        if found is None:
            raise errors.not_found(target.group_resource, target.name)
        return found

    def _selected(self, request: ProgramHttpRequest, target: _Target) -> Callable[[Object], bool]:
        try:
            labels = parse_labels(request.query.get("labelSelector", ""))
            fields = parse_fields(request.query.get("fieldSelector", ""))
        except SelectorError as problem:
            raise errors.bad_request(str(problem)) from None

        def selected(obj: Object) -> bool:
            meta = obj["metadata"]
            values = {
                "metadata.name": meta["name"],
                "metadata.namespace": meta.get("namespace", ""),
            }
            return (
                target.namespace in ("", meta.get("namespace", ""))
                and labels.matches(meta.get("labels"))
                and fields.matches(values)
            )

        return selected

    def _matching(self, request: ProgramHttpRequest, target: _Target) -> list[Object]:
        selected = self._selected(request, target)
        return [
            obj
            for (resource, _, _), obj in sorted(self._objects.items())
            if resource == target.resource and selected(obj)
        ]

    def _list(self, request: ProgramHttpRequest, target: _Target) -> ProgramHttpResponse:
        items = self._matching(request, target)
        return _shown(request, self._as_list(target.row.kind, items), items)

    def _as_list(self, kind: str, items: list[Object]) -> Object:
        return {
            "kind": f"{kind}List",
            "apiVersion": _API_VERSION,
            "metadata": {"resourceVersion": str(self._revision)},
            "items": items,
        }

    async def _watch(self, request: ProgramHttpRequest, target: _Target) -> ProgramHttpResponse:
        query = request.query
        if "sendInitialEvents" in query:
            why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            problem = field.forbidden("sendInitialEvents", why)
            raise errors.invalid(GroupResource("meta.k8s.io", "ListOptions"), "", [problem])
        since = int(query.get("resourceVersion") or 0)
        selected = self._selected(request, target)
        if not since:
            found = self._matching(request, target)
            if found:
                return _events(("ADDED", obj) for obj in found)
            since = self._revision
        elif since < self._forgotten:
            status = errors.gone(f"too old resource version: {since} ({self._forgotten})").status()
            return _events([("ERROR", status)])
        timeout = float(query.get("timeoutSeconds") or _WATCH_SECONDS)
        end = self._context.clock.monotonic() + min(timeout, _WATCH_SECONDS)
        while True:
            events = [
                (event.type, event.obj)
                for event in self._events
                if event.revision > since
                and event.resource == target.resource
                and selected(event.obj)
            ]
            left = end - self._context.clock.monotonic()
            if events or left <= 0:
                return _events(events)
            await self._next_change(left)

    async def _next_change(self, seconds: float) -> None:
        """Waits until something changes, at most this long."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        timer = self._context.clock.call_later(seconds, _resolve, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)

    # ---- writes ----

    def _record(self, type: str, resource: str, obj: Object) -> None:
        self._events.append(_Event(self._revision, type, resource, obj))
        if len(self._events) > _EVENTS:
            self._forgotten = self._events.pop(0).revision
        for waiter in self._waiters:
            _resolve(waiter)

    def _stored(self, type: str, target: _Target, obj: Object) -> Object:
        self._revision += 1
        meta = {**obj["metadata"], "resourceVersion": str(self._revision)}
        obj = {**obj, "metadata": meta}
        self._objects[target.resource, meta.get("namespace", ""), meta["name"]] = obj
        self._record(type, target.resource, obj)
        return obj

    def _create(self, request: ProgramHttpRequest, target: _Target) -> ProgramHttpResponse:
        obj = _decoded(request, target)
        meta = dict(obj.get("metadata") or {})
        if meta.get("generateName") and not meta.get("name"):
            suffix = "".join(self._context.rng.choices(_SUFFIX, k=5))
            meta["name"] = meta["generateName"] + suffix
        name = meta.get("name", "")
        kind = GroupResource(_GROUP, target.row.kind)
        if not name:
            problem = field.required("metadata.name", "name or generateName is required")
            raise errors.invalid(kind, "", [problem])
        if target.row.namespaced:
            meta["namespace"] = target.namespace
        self._check_banned(target, name)
        if (target.resource, target.namespace, name) in self._objects:
            raise errors.already_exists(target.group_resource, name)
        if len(self._objects) >= _MOST_OBJECTS:
            raise errors.internal("etcdserver: mvcc: database space exceeded")
        meta["uid"] = random_uuid(self._context.rng)
        meta["creationTimestamp"] = rfc3339(self._context.clock.time())
        made = _completed(obj, meta, target)
        if "dryRun" in request.query:
            return _json(made, 201)
        return _json(self._stored("ADDED", target, made), 201)

    def _check_banned(self, target: _Target, name: str) -> None:
        """Fischers list names that flunders must not have."""
        if target.resource != "flunders":
            return
        for (resource, _, _), fischer in self._objects.items():
            if resource == "fischers" and name in (fischer.get("disallowedFlunders") or ()):
                why = "this name may not be used, please change the resource name"
                raise errors.forbidden(target.group_resource, name, why)

    def _update(self, request: ProgramHttpRequest, target: _Target) -> ProgramHttpResponse:
        live = self._existing(target)
        return self._replaced(request, target, live, _decoded(request, target))

    def _patch(self, request: ProgramHttpRequest, target: _Target) -> ProgramHttpResponse:
        live = self._existing(target)
        patch = _body(request)
        if request.headers.get("content-type", "").startswith("application/json-patch"):
            if not isinstance(patch, list):
                raise errors.bad_request("a JSON patch must be a list")
            changed = json_patch(live, patch)
        elif isinstance(patch, dict):
            changed = merge_patch(live, patch)
        else:
            raise errors.bad_request("a merge patch must be an object")
        return self._replaced(request, target, live, changed)

    def _replaced(
        self, request: ProgramHttpRequest, target: _Target, live: Object, new: Object
    ) -> ProgramHttpResponse:
        given, own = new.get("metadata") or {}, live["metadata"]
        if given.get("resourceVersion") not in (None, "", own["resourceVersion"]):
            why = (
                "the object has been modified; please apply your changes to the latest version "
                "and try again"
            )
            raise errors.conflict(target.group_resource, target.name, why)
        kept = ("name", "namespace", "uid", "creationTimestamp", "resourceVersion")
        meta = {**given, **{key: own[key] for key in kept if key in own}}
        changed = _completed(new, meta, target)
        part = "status" if target.subresource else "spec"
        other = "spec" if target.subresource else "status"
        if target.row.namespaced:
            changed = {**changed, part: changed[part], other: live[other]}
        if changed == live or "dryRun" in request.query:
            return _json(changed)
        return _json(self._stored("MODIFIED", target, changed))

    def _delete(self, request: ProgramHttpRequest, target: _Target) -> ProgramHttpResponse:
        live = self._existing(target)
        if "dryRun" not in request.query:
            self._removed(target.resource, live)
        details = {
            "name": target.name,
            "group": _GROUP,
            "kind": target.resource,
            "uid": live["metadata"]["uid"],
        }
        success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return _json({**success, "details": details})

    def _delete_collection(
        self, request: ProgramHttpRequest, target: _Target
    ) -> ProgramHttpResponse:
        items = self._matching(request, target)
        for obj in items:
            self._removed(target.resource, obj)
        return _json(self._as_list(target.row.kind, items))

    def _removed(self, resource: str, obj: Object) -> None:
        self._revision += 1
        meta = {**obj["metadata"], "resourceVersion": str(self._revision)}
        del self._objects[resource, meta.get("namespace", ""), meta["name"]]
        self._record("DELETED", resource, {**obj, "metadata": meta})


# By method, and whether the request names an object.
_ACTIONS: Final[
    dict[
        tuple[str, bool],
        Callable[[SampleApiServer, ProgramHttpRequest, _Target], ProgramHttpResponse],
    ]
] = {
    ("DELETE", False): SampleApiServer._delete_collection,
    ("DELETE", True): SampleApiServer._delete,
    ("GET", True): SampleApiServer._get,
    ("PATCH", True): SampleApiServer._patch,
    ("POST", False): SampleApiServer._create,
    ("PUT", True): SampleApiServer._update,
}


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _check_user(request: ProgramHttpRequest) -> None:
    if not request.headers.get("x-remote-user"):
        why = f'User "system:anonymous" cannot {request.method.lower()} path "{request.path}"'
        raise errors.forbidden(GroupResource("", ""), "", why)


def _target_of(path: str) -> _Target | None:
    parts = path.strip("/").split("/")
    if parts[:3] != ["apis", _GROUP, _VERSION]:
        return None
    rest, namespace = parts[3:], ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest, "", "", "")[:3]
    row = _RESOURCES.get(resource)
    if row is None or len(rest) > 3 or subresource not in ("", "status"):
        return None
    if (namespace and not row.namespaced) or (row.namespaced and name and not namespace):
        return None
    return _Target(resource, namespace, name, subresource)


def _body(request: ProgramHttpRequest) -> Any:
    try:
        return json.loads(request.body)
    except ValueError as problem:
        raise errors.bad_request(f"the body is not valid JSON: {problem}") from None


def _decoded(request: ProgramHttpRequest, target: _Target) -> Object:
    obj = _body(request)
    kind = target.row.kind
    if not isinstance(obj, dict) or (obj.get("kind"), obj.get("apiVersion")) != (
        kind,
        _API_VERSION,
    ):
        raise errors.bad_request(
            f"the object provided is unrecognized: expected {_API_VERSION} {kind}"
        )
    name = (obj.get("metadata") or {}).get("name", "")
    if target.name and name != target.name:
        raise errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )
    return obj


def _completed(obj: Object, meta: Object, target: _Target) -> Object:
    """The object with the fields of its kind, defaulted."""
    out: Object = {"kind": target.row.kind, "apiVersion": _API_VERSION, "metadata": meta}
    if target.resource == "fischers":
        banned = obj.get("disallowedFlunders")
        return {**out, "disallowedFlunders": banned} if banned else out
    spec = {
        key: value
        for key, value in (obj.get("spec") or {}).items()
        if key in ("reference", "referenceType") and value
    }
    if "reference" in spec:
        spec.setdefault("referenceType", "Flunder")
    return {**out, "spec": spec, "status": {}}


# ---- answers ----


def _json(document: Object, status: int = 200) -> ProgramHttpResponse:
    return program_text_response(json.dumps(document) + "\n", status, "application/json")


def _events(events: Iterable[tuple[str, Object]]) -> ProgramHttpResponse:
    lines = "".join(json.dumps({"type": type, "object": obj}) + "\n" for type, obj in events)
    return program_text_response(lines, 200, "application/json")


def _shown(
    request: ProgramHttpRequest, document: Object, items: list[Object] | None = None
) -> ProgramHttpResponse:
    """The object or list, or a table of it."""
    if "as=Table" not in request.headers.get("accept", ""):
        return _json(document)
    rows = [document] if items is None else items
    columns = (("Name", "name"), ("Created At", "date"))
    meta = document["metadata"]
    table = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": meta["resourceVersion"]},
        "columnDefinitions": [
            {"name": name, "type": "string" if name == "Name" else "date", "format": form}
            | {"description": "", "priority": 0}
            for name, form in columns
        ],
        "rows": [
            {
                "cells": [obj["metadata"]["name"], obj["metadata"]["creationTimestamp"]],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": obj["metadata"],
                },
            }
            for obj in rows
        ],
    }
    return _json(table)


def _resource_list() -> list[Object]:
    out: list[Object] = []
    for name, (kind, namespaced) in sorted(_RESOURCES.items()):
        row = {"name": name, "singularName": kind.lower(), "namespaced": namespaced, "kind": kind}
        out.append({**row, "verbs": _VERBS})
        if namespaced:
            status = {**row, "name": f"{name}/status", "singularName": ""}
            out.append({**status, "verbs": ["get", "patch", "update"]})
    return out


_VERSIONS: Final = [{"groupVersion": _API_VERSION, "version": _VERSION}]
_API_GROUP: Final = {
    "name": _GROUP,
    "versions": _VERSIONS,
    "preferredVersion": _VERSIONS[0],
}
_DISCOVERY: Final[dict[str, Object]] = {
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_API_GROUP]},
    f"/apis/{_GROUP}": {"kind": "APIGroup", "apiVersion": "v1", **_API_GROUP},
    f"/apis/{_API_VERSION}": {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": _API_VERSION,
        "resources": _resource_list(),
    },
}


def sample_apiserver(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    return agnhost_tls.serve_tls(server, SampleApiServer(context).handle, port_flag="secure-port")
