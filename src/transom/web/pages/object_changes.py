"""Changes to an object: server-side apply with its conflicts, dry run and difference, and delete."""

from __future__ import annotations

from typing import Any

import orjson

from transom.client.api import APPLY_PATCH, delete_options
from transom.http.messages import Answer
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.web.apply_changes import (
    FIELD_MANAGER,
    configuration_to_apply,
    conflict_rows,
    removed_fields,
)
from transom.web.object_text import (
    diff_lines,
    editable_object,
    parse_yaml_object,
    yaml_text,
)
from transom.web.pages.object_address import request_kind, request_namespace, request_object
from transom.web.responses import json_page
from transom.web.routing import PageRequest
from transom.web.workers import run_in_worker


async def apply_object(request: PageRequest) -> Answer:
    """Applies the edited text: {yaml, dryRun, force}.

    The answer has the difference to the object of now, the result, fields that stay because others
    own them, or the conflicts.
    """
    body = request.json()
    wanted = await parse_yaml_object(str(body.get("yaml") or ""))
    kind, now = await request_object(request)
    _check_identity(wanted, now, kind.api_version, kind.kind)
    query = {"fieldManager": FIELD_MANAGER}
    if body.get("dryRun"):
        query["dryRun"] = "All"
    if body.get("force"):
        query["force"] = "true"
    configuration = await run_in_worker(_configuration, now, wanted)
    answer = await request.services.api.request(
        "PATCH",
        kind.path(request_namespace(request), request.params["name"]),
        query,
        body=configuration,
        media_type=APPLY_PATCH,
    )
    if answer.status == 409:
        problem = _error_of(answer.body)
        if conflicts := conflict_rows(problem.get("details")):
            return json_page({"conflicts": conflicts, "message": problem.get("message")})
    result = answer.json()
    before, after = await yaml_text(editable_object(now)), await yaml_text(editable_object(result))
    return json_page(
        {
            "diff": await diff_lines(before, after),
            "edited": after,
            "version": result["metadata"].get("resourceVersion") or "",
            "kept": (await run_in_worker(removed_fields, wanted, editable_object(result)))[:50],
            "dryRun": bool(body.get("dryRun")),
        }
    )


def _configuration(now: Object, wanted: Object) -> bytes:
    """Takes time that grows with the objects, whose fields may have thousands of managers."""
    before = {**editable_object(now), "metadata": _with_managers(now)}
    return orjson.dumps(configuration_to_apply(before, wanted))


def _with_managers(obj: Object) -> dict[str, Any]:
    meta: dict[str, Any] = editable_object(obj)["metadata"]
    return {**meta, "managedFields": obj["metadata"].get("managedFields") or []}


def _check_identity(wanted: Object, now: Object, api_version: str, kind: str) -> None:
    """The edited text must still be about the same object."""
    for name, value in (("apiVersion", api_version), ("kind", kind)):
        if wanted.get(name) != value:
            raise ApiError(400, "BadRequest", f"{name} must stay {value}")
    for name in ("name", "namespace"):
        if wanted["metadata"].get(name) != now["metadata"].get(name):
            raise ApiError(400, "BadRequest", f"metadata.{name} cannot change")


def _error_of(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


async def delete_shown_object(request: PageRequest) -> Answer:
    """Deletes the object that the page showed: {uid, propagation, dryRun}."""
    body = request.json()
    kind = await request_kind(request)
    options = delete_options(
        uid=str(body.get("uid") or ""), propagation=str(body.get("propagation") or "Background")
    )
    query = {"dryRun": "All"} if body.get("dryRun") else None
    answer = await request.services.api.request(
        "DELETE",
        kind.path(request_namespace(request), request.params["name"]),
        query,
        body=orjson.dumps(options),
    )
    answer.json()  # raises what the server refuses
    return json_page({"deleted": True})
