"""The Objects page: the kinds that the server has, the objects of a kind as a table, and one object.

This module has the tables and the list of all routes; `object_view`, `object_live`,
`object_new`, `object_changes`, `pod_streams` and `pod_ports` have the rest.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson

from transom.http.messages import Answer
from transom.machinery.errors import ApiError
from transom.web.api_access import TABLE
from transom.web.kind_index import CORE, ServedKind, object_page
from transom.web.layout import page_response, scroll_box
from transom.web.markup import Child, Markup, fragment, tag
from transom.web.pages import (
    object_changes,
    object_live,
    object_new,
    object_view,
    pod_ports,
    pod_streams,
)
from transom.web.pages.object_address import OBJECT, OBJECTS_PAGE, request_kind
from transom.web.responses import EventStream, event_response, redirect_to_page
from transom.web.routing import PageRequest, Route

_ROWS: Final = 100
_MOST_NAMESPACES: Final = 500
_MOST_CELL: Final = 300
# The kinds that most people look for, before all others
_COMMON: Final = (
    ("", "pods"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("batch", "jobs"),
    ("", "services"),
    ("", "configmaps"),
    ("", "secrets"),
    ("", "persistentvolumeclaims"),
    ("", "nodes"),
    ("", "namespaces"),
    ("", "events"),
)


async def show_start(_: PageRequest) -> Answer:
    return redirect_to_page("/objects/core/v1/pods")


async def show_table(request: PageRequest) -> Answer:
    """The objects of a kind. A user who may not list it in all namespaces sees that of the context;
    one who may not list it at all sees the reason and the other kinds.
    """
    kind = await request_kind(request)
    table, namespaces, kinds = await asyncio.gather(
        _read_table(request, kind),
        _namespaces(request, kind),
        request.services.kinds.kinds(),
        return_exceptions=True,
    )
    for problem in (namespaces, kinds):
        if isinstance(problem, BaseException):
            raise problem
    namespace = request.query("namespace")
    if isinstance(table, BaseException):
        if not isinstance(table, ApiError) or table.code != 403:
            raise table
        if kind.namespaced and not namespace and request.services.namespace:
            return redirect_to_page(f"{kind.page}?namespace={quote(request.services.namespace)}")
        rows = fragment(
            tag("h2", "Not allowed"), tag("p", table.message, role="alert", class_="problem")
        )
    else:
        rows = fragment(
            _table(kind, table, wide=bool(request.query("wide"))), _paging(request, kind, table)
        )
    body = fragment(
        _kind_list(kinds, kind, namespace),
        tag(
            "div",
            _heading(kind, kinds, namespace),
            _filters(request, kind, namespaces),
            rows,
            class_="listing",
        ),
    )
    status = 403 if isinstance(table, ApiError) else 200
    return page_response(
        request,
        OBJECTS_PAGE,
        tag("div", body, class_="objects"),
        title=kind.plural,
        status=status,
    )


def _list_query(request: PageRequest) -> dict[str, str]:
    names = (("labels", "labelSelector"), ("fields", "fieldSelector"), ("continue", "continue"))
    query = {name: request.query(short) for short, name in names if request.query(short)}
    return {**query, "limit": str(_ROWS)}


async def _read_table(request: PageRequest, kind: ServedKind) -> dict[str, Any]:
    path = kind.path(request.query("namespace"))
    answer = await request.services.api.request("GET", path, _list_query(request), accept=TABLE)
    if answer.status == 410:  # the page took too long to turn: from the start
        query = {k: v for k, v in _list_query(request).items() if k != "continue"}
        answer = await request.services.api.request("GET", path, query, accept=TABLE)
    found = answer.json()
    if not isinstance(found, dict) or found.get("kind") != "Table":
        raise ApiError(406, "NotAcceptable", "the server has no table of this kind")
    return found


async def _namespaces(request: PageRequest, kind: ServedKind) -> list[str]:
    """The names of namespaces to choose from; none if the user may not list them."""
    if not kind.namespaced:
        return []
    query = {"limit": str(_MOST_NAMESPACES)}
    answer = await request.services.api.request("GET", "/api/v1/namespaces", query)
    if answer.status != 200:
        return [request.services.namespace]
    return [item["metadata"]["name"] for item in answer.json().get("items") or ()]


def _kind_list(kinds: tuple[ServedKind, ...], now: ServedKind, namespace: str) -> Markup:
    listed = [one for one in kinds if one.preferred and "list" in one.verbs]
    common = [one for name in _COMMON for one in listed if (one.group, one.plural) == name]
    groups: dict[str, list[ServedKind]] = {}
    for one in listed:
        if one not in common:
            groups.setdefault(one.group, []).append(one)
    query = f"?{urlencode({'namespace': namespace})}" if namespace else ""

    def link(one: ServedKind) -> Markup:
        current = (one.group, one.plural) == (now.group, now.plural)
        address = one.page + (query if one.namespaced else "")
        return tag(
            "li",
            tag(
                "a",
                one.plural,
                href=address,
                title=one.plural,
                aria_current="page" if current else None,
                data_names=" ".join((one.plural, one.kind, one.group, *one.short_names)).lower(),
            ),
        )

    return tag(
        "nav",
        tag(
            "details",
            tag("summary", "Kinds"),
            tag("label", "Find a kind", for_="kind-filter", class_="visually-hidden"),
            tag("input", id="kind-filter", type="search", placeholder="Find a kind"),
            tag("ul", [link(one) for one in common]),
            [
                fragment(tag("h3", group or "core"), tag("ul", [link(one) for one in group_kinds]))
                for group, group_kinds in sorted(groups.items())
            ],
            open=True,
            id="kind-list",
        ),
        aria_label="Kinds",
        class_="kinds",
    )


def _heading(kind: ServedKind, kinds: tuple[ServedKind, ...], namespace: str) -> Markup:
    versions = [one for one in kinds if (one.group, one.plural) == (kind.group, kind.plural)]
    others = [
        tag(
            "a",
            one.api_version,
            href=one.page,
            class_="badge",
            aria_current="true" if one.version == kind.version else None,
        )
        for one in versions
    ]
    return tag(
        "div",
        tag("h1", kind.kind),
        others,
        tag("span", "", id="live", class_="live", role="status"),
        tag("span", class_="grow"),
        tag("a", "New", href=_new_address(kind, namespace), class_="button", id="new-object")
        if "create" in kind.verbs
        else None,
        class_="toolbar",
    )


def _new_address(kind: ServedKind, namespace: str) -> str:
    wanted = {"kind": f"{kind.group or CORE}/{kind.version}/{kind.plural}"}
    if namespace:
        wanted["namespace"] = namespace
    return f"{object_new.NEW_OBJECT}?{urlencode(wanted)}"


def _filters(request: PageRequest, kind: ServedKind, namespaces: list[str]) -> Markup:
    chosen = request.query("namespace")
    if chosen and chosen not in namespaces:
        namespaces = [chosen, *namespaces]
    choice: Child = None
    if kind.namespaced:
        options = [tag("option", "all namespaces", value="", selected=not chosen)]
        options += [tag("option", n, value=n, selected=n == chosen) for n in namespaces]
        choice = fragment(
            tag("label", "Namespace", for_="namespace", class_="visually-hidden"),
            tag("select", options, id="namespace", name="namespace"),
        )
    return tag(
        "form",
        choice,
        tag("label", "Labels", for_="labels", class_="visually-hidden"),
        tag(
            "input",
            id="labels",
            name="labels",
            type="search",
            value=request.query("labels"),
            placeholder="labels: app=web,tier!=db",
        ),
        tag("label", "Fields", for_="fields", class_="visually-hidden"),
        tag(
            "input",
            id="fields",
            name="fields",
            type="search",
            value=request.query("fields"),
            placeholder="fields: metadata.name=web",
        ),
        tag("button", "List", type="submit"),
        tag("span", class_="grow"),
        tag("label", "Filter rows", for_="row-filter", class_="visually-hidden"),
        tag("input", id="row-filter", type="search", placeholder="Filter rows", data_filter=True),
        tag(
            "label",
            tag(
                "input",
                type="checkbox",
                name="wide",
                value="1",
                checked=bool(request.query("wide")),
            ),
            " all columns",
            class_="check",
        ),
        method="get",
        action=kind.page,
        class_="toolbar",
        id="list-form",
    )


def _shown_columns(table: dict[str, Any], *, wide: bool) -> list[int]:
    columns = table.get("columnDefinitions") or ()
    return [at for at, column in enumerate(columns) if wide or not column.get("priority")]


def _table(kind: ServedKind, table: dict[str, Any], *, wide: bool) -> Markup:
    columns, shown = table.get("columnDefinitions") or [], _shown_columns(table, wide=wide)
    rows = table.get("rows") or []
    several = kind.namespaced
    heads = [
        tag("th", columns[at]["name"], scope="col", title=columns[at].get("description"))
        for at in shown
    ]
    if several:
        heads.insert(0, tag("th", "Namespace", scope="col"))
    body = [_row(kind, row, shown) for row in rows]
    return scroll_box(
        kind.plural,
        tag(
            "table",
            tag("caption", f"{kind.plural}", class_="visually-hidden"),
            tag("thead", tag("tr", heads)),
            tag("tbody", body, id="rows"),
            id="table",
            data_columns=orjson.dumps(shown).decode(),
            data_page=kind.page,
            data_namespaced="1" if several else "",
            data_version=str((table.get("metadata") or {}).get("resourceVersion") or ""),
            data_full="1" if (table.get("metadata") or {}).get("continue") else "",
            data_most=str(_ROWS),
        ),
        tag("p", "There are no objects.", class_="empty muted", hidden=bool(rows), id="empty"),
    )


def _row(kind: ServedKind, row: dict[str, Any], shown: list[int]) -> Markup:
    meta = (row.get("object") or {}).get("metadata") or {}
    namespace, name = str(meta.get("namespace") or ""), str(meta.get("name") or "")
    cells = row.get("cells") or []
    address = object_page(kind, quote(namespace, safe=""), quote(name, safe=""))
    made = [
        tag("td", tag("a", name, href=address) if at == 0 else cell_text(cells[at]))
        for at in shown
        if at < len(cells)
    ]
    if kind.namespaced:
        made.insert(0, tag("td", namespace))
    return tag("tr", made, data_key=f"{namespace}/{name}")


def cell_text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= _MOST_CELL else text[:_MOST_CELL] + "…"


def _paging(request: PageRequest, kind: ServedKind, table: dict[str, Any]) -> Markup:
    meta = table.get("metadata") or {}
    token, left = meta.get("continue"), meta.get("remainingItemCount")
    kept = {
        name: request.query(name)
        for name in ("namespace", "labels", "fields", "wide")
        if request.query(name)
    }
    first = f"{kind.page}?{urlencode(kept)}"
    following = f"{kind.page}?{urlencode({**kept, 'continue': token})}" if token else ""
    more = f" ({left} more)" if left else ""
    return tag(
        "p",
        tag("a", "First page", href=first, class_="button") if request.query("continue") else None,
        " ",
        tag("a", f"Next {_ROWS}{more}", href=following, class_="button") if following else None,
        class_="paging",
    )


async def table_events(request: PageRequest) -> Answer:
    """Changes of the table's rows, from the server's watch."""
    kind = await request_kind(request)
    query = {k: v for k, v in _list_query(request).items() if k not in ("limit", "continue")}
    query |= {"watch": "true", "resourceVersion": request.query("version")}

    async def produce(events: EventStream) -> None:
        stream = await request.services.api.open_stream(
            kind.path(request.query("namespace")), query, accept=TABLE
        )
        try:
            while lines := await stream.read_lines():
                changes = [change for line in lines if line for change in row_changes(line)]
                if changes:
                    await events.send("rows", changes)
        finally:
            stream.close()
        raise ApiError(410, "Expired", "the list is too old: reload the page")

    return event_response(request, produce)


def row_changes(line: bytes) -> list[dict[str, Any]]:
    """The rows of one watch event with a table. Raises ApiError for an error event."""
    event = orjson.loads(line)
    table = event["object"]
    if event["type"] == "ERROR":
        raise ApiError(table.get("code") or 500, "", table.get("message") or "the watch failed")
    if event["type"] == "BOOKMARK" or not isinstance(table, dict):
        return []
    found = []
    for row in table.get("rows") or ():
        meta = (row.get("object") or {}).get("metadata") or {}
        found.append(
            {
                "type": event["type"],
                "namespace": meta.get("namespace") or "",
                "name": meta.get("name") or "",
                "cells": [cell_text(cell) for cell in row.get("cells") or ()],
            }
        )
    return found


PAGE = replace(
    OBJECTS_PAGE,
    routes=(
        Route("GET", "/objects", show_start),
        Route("GET", object_new.NEW_OBJECT, object_new.show_new_object),
        Route("POST", object_new.NEW_OBJECT, object_new.create_from_yaml),
        Route("GET", "/objects/{group}/{version}/{resource}", show_table),
        Route("GET", "/object-rows/{group}/{version}/{resource}", table_events),
        Route("GET", OBJECT, object_view.show_object),
        Route("GET", f"{OBJECT}/live", object_live.object_events),
        Route("GET", f"{OBJECT}/tree", object_live.object_tree),
        Route("POST", f"{OBJECT}/apply", object_changes.apply_object),
        Route("POST", f"{OBJECT}/delete", object_changes.delete_shown_object),
        Route("GET", f"{OBJECT}/log", pod_streams.pod_log),
        Route("GET", f"{OBJECT}/terminal", pod_streams.open_terminal),
        Route("GET", f"{OBJECT}/forwards", pod_ports.list_forwards),
        Route("POST", f"{OBJECT}/forwards", pod_ports.open_forward),
        Route("POST", f"{OBJECT}/forwards/close", pod_ports.close_forward),
    ),
)
