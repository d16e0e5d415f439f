"""The Ports tab of a pod: opens, lists and closes port-forwards."""

from __future__ import annotations

from typing import Any

from transom.http.messages import Answer
from transom.machinery.errors import ApiError
from transom.web.forwards import Forward
from transom.web.pages.object_address import request_namespace, request_object
from transom.web.responses import json_page
from transom.web.routing import PageRequest


async def list_forwards(request: PageRequest) -> Answer:
    namespace, name = request_namespace(request), request.params["name"]
    found = request.services.forwards.of_pod(request.session, namespace, name)
    return json_page({"forwards": [_document(one) for one in found]})


async def open_forward(request: PageRequest) -> Answer:
    """Opens a forward to a port: {port}. The user must be able to see the pod."""
    port = request.json().get("port")
    if not isinstance(port, int) or not 0 < port < 65536:
        raise ApiError(400, "BadRequest", "a port is a number from 1 to 65535")
    kind, pod = await request_object(request)
    if (kind.group, kind.plural) != ("", "pods"):
        raise ApiError(404, "NotFound", "only pods have ports to forward")
    meta = pod["metadata"]
    forward = await request.services.forwards.open(
        request.session, meta["namespace"], meta["name"], port
    )
    return json_page(_document(forward))


async def close_forward(request: PageRequest) -> Answer:
    """Closes a forward of this session: {id}."""
    await request.services.forwards.close(request.session, str(request.json().get("id") or ""))
    return json_page({})


def _document(forward: Forward) -> dict[str, Any]:
    return {"id": forward.id, "port": forward.port, "link": forward.link}
