"""A new object from YAML: a form with a dry run, and the API server's answer."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

import orjson

from transom.http.messages import Answer
from transom.machinery.errors import ApiError
from transom.web.api_access import ApiAnswer
from transom.web.apply_changes import FIELD_MANAGER
from transom.web.kind_index import ServedKind, object_page
from transom.web.layout import page_response
from transom.web.markup import tag
from transom.web.object_text import parse_yaml_object, without_managed_fields, yaml_text
from transom.web.pages.object_address import OBJECTS_PAGE
from transom.web.responses import json_page
from transom.web.routing import PageRequest

NEW_OBJECT: Final = "/objects/new"
_WARNING: Final = re.compile(r'^299 \S+ "((?:[^"\\]|\\.)*)"')


async def show_new_object(request: PageRequest) -> Answer:
    """An editor with the head of an object; `?kind=apps/v1/deployments` chooses its kind."""
    group, _, resource = request.query("kind").rpartition("/")
    group, _, version = group.rpartition("/")
    kind = await request.services.kinds.find(group, version, resource) if resource else None
    namespace = request.query("namespace") or request.services.namespace or "default"
    return page_response(
        request,
        OBJECTS_PAGE,
        tag("h1", f"New {kind.kind}" if kind else "New object"),
        tag(
            "form",
            tag("label", "YAML or JSON of one object", for_="editor"),
            tag(
                "textarea",
                _template(kind, namespace),
                id="editor",
                class_="editor",
                rows=24,
                spellcheck="false",
                autocomplete="off",
                autocapitalize="off",
                wrap="off",
                autofocus=True,
            ),
            tag(
                "div",
                tag("button", "Dry run", type="submit"),
                tag("button", "Create", type="button", id="create", class_="primary"),
                tag("a", "Cancel", href=kind.page if kind else "/objects", class_="button"),
                class_="toolbar",
            ),
            tag("div", id="outcome", role="status", aria_live="polite"),
            id="new-form",
            data_namespace=namespace,
        ),
        title=f"New {kind.kind}" if kind else "New object",
        script="object_new.js",
    )


def _template(kind: ServedKind | None, namespace: str) -> str:
    lines = [
        f"apiVersion: {kind.api_version if kind else ''}",
        f"kind: {kind.kind if kind else ''}",
        "metadata:",
        "  name: ",
    ]
    if kind is None or kind.namespaced:
        lines.append(f"  namespace: {namespace}")
    return "\n".join([*lines, ""])


async def create_from_yaml(request: PageRequest) -> Answer:
    """Creates the object: {yaml, namespace, dryRun}. Errors are those of the API server."""
    body = request.json()
    wanted = await parse_yaml_object(str(body.get("yaml") or ""))
    kind = await _kind_of(request, wanted.get("apiVersion"), wanted.get("kind"))
    namespace = wanted["metadata"].get("namespace") or body.get("namespace") or ""
    query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
    if body.get("dryRun"):
        query["dryRun"] = "All"
    answer = await request.services.api.request(
        "POST", kind.path(_path_segment(namespace)), query, body=orjson.dumps(wanted)
    )
    result = answer.json()
    meta = result["metadata"]
    place = quote(str(meta.get("namespace") or ""), safe="")
    return json_page(
        {
            "dryRun": bool(body.get("dryRun")),
            "yaml": await yaml_text(without_managed_fields(result)),
            "page": object_page(kind, place, quote(str(meta["name"]), safe="")),
            "warnings": response_warnings(answer),
        }
    )


async def _kind_of(request: PageRequest, api_version: object, name: object) -> ServedKind:
    if not isinstance(api_version, str) or not isinstance(name, str) or not api_version or not name:
        raise ApiError(400, "BadRequest", "apiVersion and kind are required")
    kind = await request.services.kinds.of_object(api_version, name)
    if kind is None:
        text = f"the server has no kind {name[:80]!r} in version {api_version[:80]!r}"
        raise ApiError(404, "NotFound", text)
    return kind


def _path_segment(namespace: object) -> str:
    if not isinstance(namespace, str) or "/" in namespace or namespace in (".", ".."):
        raise ApiError(400, "BadRequest", "metadata.namespace is not a name")
    return namespace


def response_warnings(answer: ApiAnswer) -> list[str]:
    """The texts of the Warning headers of a response."""
    found = []
    for name, value in answer.headers:
        if name.lower() == b"warning" and (match := _WARNING.match(value.decode(errors="replace"))):
            found.append(re.sub(r"\\(.)", r"\1", match[1]))
    return found
