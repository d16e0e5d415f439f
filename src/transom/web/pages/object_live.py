"""The live data of one object's page: the object, its overview and its Events, from the API's
watches; and its owner tree.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from transom.client.api import ApiUnreachable
from transom.http.messages import Answer
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.web.apply_changes import fields_text
from transom.web.kind_index import ServedKind
from transom.web.object_text import editable_object, without_managed_fields, yaml_text
from transom.web.owner_tree import owned_tree, owner_chain
from transom.web.pages.object_address import request_kind, request_namespace, request_object
from transom.web.responses import EventStream, event_response, json_page
from transom.web.routing import PageRequest

_MOST_EVENTS: Final = 100
_MOST_PAIRS: Final = 100
_LONGEST_VALUE: Final = 400


async def object_events(request: PageRequest) -> Answer:
    """The object and its events, now and whenever they change."""
    kind = await request_kind(request)
    namespace, name = request_namespace(request), request.params["name"]

    async def produce(events: EventStream) -> None:
        obj, version = await _read_object(request, kind, namespace, name)
        await _send_object(events, obj)
        uid = str(obj["metadata"].get("uid") or "")
        watching = asyncio.ensure_future(_follow_events(request, events, namespace, uid, name))
        try:
            if version:
                await _follow_object(request, events, kind, obj, version)
            else:
                await watching
                await asyncio.Event().wait()  # the page stays as it is
        finally:
            watching.cancel()

    return event_response(request, produce)


async def _read_object(
    request: PageRequest, kind: ServedKind, namespace: str, name: str
) -> tuple[Object, str]:
    """The object, and the version of a list to watch from; none if the user may not watch it."""
    api = request.services.api
    if {"list", "watch"} <= kind.verbs:
        query = {"fieldSelector": f"metadata.name={name}"}
        answer = await api.request("GET", kind.path(namespace), query)
        if answer.status == 200:
            found = answer.json()
            version = str(found["metadata"].get("resourceVersion") or "")
            for item in found.get("items") or ():
                api_version, kind_name = kind.api_version, kind.kind
                return {"apiVersion": api_version, "kind": kind_name, **item}, version
    return await api.get_json(kind.path(namespace, name)), ""


async def _follow_object(
    request: PageRequest, events: EventStream, kind: ServedKind, obj: Object, version: str
) -> None:
    """Sends the object whenever it changes, until the server ends the watch."""
    meta = obj["metadata"]
    query = {
        "watch": "true",
        "fieldSelector": f"metadata.name={meta['name']}",
        "resourceVersion": version,
    }
    path = kind.path(meta.get("namespace", ""))
    stream = await request.services.api.open_stream(path, query)
    try:
        while lines := await stream.read_lines():
            for line in lines:
                event: Object = orjson.loads(line) if line else {"type": "BOOKMARK"}
                if event["type"] == "DELETED":
                    await events.send("gone", {})
                elif event["type"] in ("ADDED", "MODIFIED"):
                    await _send_object(events, event["object"])
    finally:
        stream.close()


async def _send_object(events: EventStream, obj: Object) -> None:
    text = await yaml_text(without_managed_fields(obj))
    editable = await yaml_text(editable_object(obj))
    await events.send("object", {"yaml": text, "editable": editable, **object_summary(obj)})


def object_summary(obj: Object) -> dict[str, Any]:
    """The overview: short lists of what most kinds have."""
    meta = obj["metadata"]
    found = obj.get("status")
    status: Object = found if isinstance(found, dict) else {}
    conditions = status.get("conditions")
    return {
        "version": meta.get("resourceVersion") or "",
        "created": meta.get("creationTimestamp") or "",
        "deleting": meta.get("deletionTimestamp") or "",
        "labels": _pairs(meta.get("labels")),
        "annotations": _pairs(meta.get("annotations")),
        "finalizers": list(meta.get("finalizers") or ())[:_MOST_PAIRS],
        "conditions": [
            {name: str(one.get(name) or "") for name in ("type", "status", "reason", "message")}
            for one in (conditions if isinstance(conditions, list) else ())[:_MOST_PAIRS]
            if isinstance(one, dict)
        ],
        "containers": _containers(status),
        "managers": [
            {
                "manager": str(entry.get("manager") or ""),
                "operation": str(entry.get("operation") or ""),
                "subresource": str(entry.get("subresource") or ""),
                "time": str(entry.get("time") or ""),
                "fields": fields_text(entry.get("fieldsV1")),
            }
            for entry in (meta.get("managedFields") or ())[:_MOST_PAIRS]
        ],
    }


def _containers(status: Object) -> list[dict[str, Any]]:
    found = []
    for part in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for one in status.get(part) or ():
            states: Object = one.get("state") or {"waiting": {}}
            state = next(iter(states))
            details: Object = states[state] or {}
            found.append(
                {
                    "name": one.get("name", ""),
                    "image": one.get("image", ""),
                    "state": state,
                    "reason": str(details.get("reason") or ""),
                    "message": str(details.get("message") or "")[:_LONGEST_VALUE],
                    "exitCode": details.get("exitCode"),
                    "restarts": one.get("restartCount", 0),
                    "ready": bool(one.get("ready")),
                }
            )
    return found


def _pairs(values: Any) -> list[list[str]]:
    if not isinstance(values, dict):
        return []
    return [
        [key, str(value)[:_LONGEST_VALUE]] for key, value in sorted(values.items())[:_MOST_PAIRS]
    ]


async def _follow_events(
    request: PageRequest, events: EventStream, namespace: str, uid: str, name: str
) -> None:
    """Sends the Events about the object, newest last; again after each change."""
    api = request.services.api
    # Events about nodes have the node's name as uid.
    query = {"fieldSelector": f"involvedObject.name={name}", "limit": str(_MOST_EVENTS)}
    path = f"/api/v1/namespaces/{namespace}/events" if namespace else "/api/v1/events"
    try:
        found = await api.get_json(path, query)
        rows = {
            one["metadata"]["name"]: _event_row(one)
            for one in found.get("items") or ()
            if _is_about(one, uid, name)
        }
        await events.send("events", list(rows.values()))
        watch = {
            "watch": "true",
            "fieldSelector": query["fieldSelector"],
            "resourceVersion": str(found["metadata"].get("resourceVersion") or ""),
        }
        stream = await api.open_stream(path, watch)
        try:
            while lines := await stream.read_lines():
                for line in lines:
                    if line:
                        _apply_event(rows, orjson.loads(line), uid, name)
                await events.send("events", list(rows.values()))
        finally:
            stream.close()
    except ApiError as problem:
        await events.send("events-refused", {"message": problem.message})
    except ApiUnreachable as problem:
        await events.send("events-refused", {"message": str(problem)})


def _is_about(event: Object, uid: str, name: str) -> bool:
    involved = event.get("involvedObject") or {}
    return involved.get("uid") in (uid, name) or not involved.get("uid")


def _apply_event(rows: dict[str, dict[str, Any]], event: Object, uid: str, name: str) -> None:
    obj = event["object"]
    key = str((obj.get("metadata") or {}).get("name"))
    if event["type"] in ("ADDED", "MODIFIED") and _is_about(obj, uid, name):
        rows.pop(key, None)
        rows[key] = _event_row(obj)
        while len(rows) > _MOST_EVENTS:
            del rows[next(iter(rows))]
    elif event["type"] == "DELETED":
        rows.pop(key, None)


def _event_row(event: Object) -> dict[str, Any]:
    series = event.get("series") or {}
    source = event.get("source") or {}
    return {
        "type": str(event.get("type") or ""),
        "reason": str(event.get("reason") or ""),
        "message": str(event.get("message") or ""),
        "count": series.get("count") or event.get("count") or 1,
        "from": str(source.get("component") or event.get("reportingComponent") or ""),
        "time": str(
            series.get("lastObservedTime")
            or event.get("lastTimestamp")
            or event.get("eventTime")
            or event["metadata"].get("creationTimestamp")
            or ""
        ),
    }


async def object_tree(request: PageRequest) -> Answer:
    """The owners of the object and what it owns."""
    kind, obj = await request_object(request)
    api, index = request.services.api, request.services.kinds
    owners = await owner_chain(api, index, obj)
    below = await owned_tree(api, index, kind.kind, obj)
    return json_page(
        {
            "owners": owners,
            "self": {"kind": kind.kind, "name": obj["metadata"]["name"]},
            "below": below,
        }
    )
