"""One object: overview, YAML with an editor, events, owners, managed fields, and the tools of pods and
nodes; kept up to date from the API's watch.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from transom.http.messages import Answer
from transom.machinery.objects import Object
from transom.web.apply_changes import FIELD_MANAGER
from transom.web.kind_index import ServedKind
from transom.web.layout import page_response
from transom.web.markup import Markup, fragment, tag
from transom.web.object_text import editable_object, without_managed_fields, yaml_text
from transom.web.pages.object_address import OBJECTS_PAGE, request_object
from transom.web.routing import PageRequest

_POD_TOOLS: Final = (("logs", "Logs"), ("terminal", "Terminal"), ("ports", "Ports"))
_NODE_TOOLS: Final = (("terminal", "Terminal"),)


async def show_object(request: PageRequest) -> Answer:
    kind, obj = await request_object(request)
    meta = obj["metadata"]
    text, edited = await asyncio.gather(
        yaml_text(without_managed_fields(obj)), yaml_text(editable_object(obj))
    )
    tabs = _tabs(kind)
    return page_response(
        request,
        OBJECTS_PAGE,
        tag(
            "div",
            _heading(kind, obj),
            tag(
                "div",
                [
                    tag(
                        "button",
                        title,
                        type="button",
                        role="tab",
                        id=f"tab-{name}",
                        aria_controls=f"panel-{name}",
                        aria_selected="true" if at == 0 else "false",
                        tabindex="0" if at == 0 else "-1",
                    )
                    for at, (name, title) in enumerate(tabs)
                ],
                role="tablist",
                aria_label="Views of the object",
                class_="tabs",
            ),
            [
                tag(
                    "section",
                    _panel(name, kind, obj, text, edited),
                    role="tabpanel",
                    id=f"panel-{name}",
                    aria_labelledby=f"tab-{name}",
                    tabindex="0",
                    hidden=at > 0,
                )
                for at, (name, _) in enumerate(tabs)
            ],
            id="object",
            data_value=orjson.dumps(_page_data(kind, obj)).decode(),
        ),
        title=f"{kind.kind} {meta['name']}",
        script="object.js",
    )


def _tabs(kind: ServedKind) -> list[tuple[str, str]]:
    tabs = [("overview", "Overview"), ("yaml", "YAML"), ("events", "Events")]
    if (kind.group, kind.plural) == ("", "pods"):
        tabs += _POD_TOOLS
    elif (kind.group, kind.plural) == ("", "nodes"):
        tabs += _NODE_TOOLS
    return [*tabs, ("owners", "Owners"), ("fields", "Managed fields")]


def _page_data(kind: ServedKind, obj: Object) -> dict[str, Any]:
    """What the page's script needs to know."""
    found = obj.get("spec")
    spec: Object = found if isinstance(found, dict) else {}
    pod = (kind.group, kind.plural) == ("", "pods")
    containers = [
        {"name": one.get("name", ""), "tty": bool(one.get("tty")), "stdin": bool(one.get("stdin"))}
        for part in ("containers", "initContainers", "ephemeralContainers")
        for one in (spec.get(part) or () if pod else ())
    ]
    ports = [
        {"port": port.get("containerPort"), "name": port.get("name") or ""}
        for one in (spec.get("containers") or () if pod else ())
        for port in one.get("ports") or ()
        if port.get("protocol", "TCP") == "TCP"
    ]
    windows = (spec.get("nodeSelector") or {}).get("kubernetes.io/os") == "windows"
    labels = obj["metadata"].get("labels") or {}
    windows = windows or labels.get("kubernetes.io/os") == "windows"
    return {
        "kind": kind.kind,
        "plural": kind.plural,
        "list": kind.page,
        "name": obj["metadata"]["name"],
        "namespace": obj["metadata"].get("namespace") or "",
        "uid": obj["metadata"].get("uid") or "",
        "verbs": sorted(kind.verbs),
        "containers": containers,
        "ports": ports,
        "windows": windows,
    }


def _heading(kind: ServedKind, obj: Object) -> Markup:
    meta = obj["metadata"]
    namespace = meta.get("namespace")
    place = fragment(
        tag("a", kind.plural, href=kind.page),
        fragment(" / ", tag("a", namespace, href=f"{kind.page}?namespace={namespace}"))
        if namespace
        else None,
    )
    return fragment(
        tag("p", place, class_="crumbs"),
        tag(
            "div",
            tag("h1", meta["name"]),
            tag("span", kind.kind, class_="badge"),
            tag("span", "", id="status", class_="badge", hidden=True),
            tag("span", "", id="live", class_="live", role="status"),
            tag("span", class_="grow"),
            tag("button", "Delete", type="button", id="delete", class_="danger")
            if "delete" in kind.verbs
            else None,
            class_="toolbar",
        ),
    )


def _panel(name: str, kind: ServedKind, obj: Object, text: str, edited: str) -> Markup:
    if name == "overview":
        return tag("div", tag("p", "Loading…", class_="muted"), id="overview")
    if name == "yaml":
        return _yaml_panel(kind, text, edited)
    if name == "ports":
        return _ports_panel()
    if name == "logs":
        return _logs_panel()
    if name == "terminal":
        return _terminal_panel(kind)
    return tag("div", tag("p", "Loading…", class_="muted"), id=name)


def _yaml_panel(kind: ServedKind, text: str, edited: str) -> Markup:
    editor = tag(
        "form",
        tag("label", "Edited object", for_="editor"),
        tag("textarea", edited, id="editor", spellcheck="false", autocomplete="off", rows="22"),
        tag(
            "p",
            f"Only the fields that you change are applied, as field manager {FIELD_MANAGER}.",
            class_="muted",
        ),
        tag(
            "div",
            tag("button", "Show difference (dry run)", type="submit", id="preview"),
            tag("button", "Apply", type="button", id="apply", class_="primary"),
            tag("button", "Cancel", type="button", id="cancel"),
            class_="toolbar",
        ),
        tag("div", id="outcome", role="status", aria_live="polite"),
        id="edit-form",
        hidden=True,
    )
    can_edit = "patch" in kind.verbs
    return fragment(
        tag(
            "div",
            tag("button", "Edit", type="button", id="edit", class_="primary") if can_edit else None,
            tag("button", "Copy", type="button", id="copy"),
            class_="toolbar",
            id="yaml-tools",
        ),
        tag("pre", text, id="yaml-text", tabindex="0", aria_label="YAML"),
        editor,
    )


def _logs_panel() -> Markup:
    return fragment(
        tag(
            "div",
            tag("label", "Container", for_="log-container", class_="visually-hidden"),
            tag("select", id="log-container"),
            tag(
                "label",
                tag("input", type="checkbox", id="log-previous"),
                " previous",
                class_="check",
            ),
            tag("label", tag("input", type="checkbox", id="log-times"), " times", class_="check"),
            tag(
                "label",
                tag("input", type="checkbox", id="log-follow", checked=True),
                " follow",
                class_="check",
            ),
            tag("span", "", id="log-state", class_="live", role="status"),
            tag("span", class_="grow"),
            tag("label", "Find", for_="log-find", class_="visually-hidden"),
            tag("input", id="log-find", type="search", placeholder="Only lines with…"),
            class_="toolbar",
        ),
        tag("pre", id="log", class_="log", tabindex="0", role="log", aria_label="Log"),
    )


def _terminal_panel(kind: ServedKind) -> Markup:
    pod = kind.plural == "pods"
    choice = (
        fragment(
            tag("label", "Container", for_="terminal-container", class_="visually-hidden"),
            tag("select", id="terminal-container"),
            tag("label", "Command", for_="terminal-command", class_="visually-hidden"),
            tag("input", id="terminal-command", value="", placeholder="command", size="18"),
        )
        if pod
        else None
    )
    return fragment(
        tag(
            "div",
            choice,
            tag(
                "button",
                "Run" if pod else "Log in to the node",
                type="button",
                id="terminal-run",
                class_="primary",
            ),
            tag("button", "Attach", type="button", id="terminal-attach") if pod else None,
            tag("button", "Disconnect", type="button", id="terminal-stop", hidden=True),
            tag("span", "", id="terminal-state", class_="live", role="status"),
            class_="toolbar",
        ),
        tag("div", id="terminal-box", class_="terminal-box"),
        tag(
            "p",
            "Ctrl+Shift+Escape leaves the terminal with the keyboard.",
            class_="muted",
        ),
    )


def _ports_panel() -> Markup:
    return fragment(
        tag(
            "p",
            "A forward opens a port of this machine that leads to a port of the pod, through the "
            "API server, until you close it or log out.",
        ),
        tag(
            "form",
            tag("label", "Port of the pod", for_="forward-port"),
            tag(
                "input",
                id="forward-port",
                type="number",
                min="1",
                max="65535",
                required=True,
                list="known-ports",
            ),
            tag("datalist", id="known-ports"),
            tag("button", "Forward", type="submit", class_="primary"),
            id="forward-form",
            class_="toolbar",
        ),
        tag("ul", id="forwards"),
    )
