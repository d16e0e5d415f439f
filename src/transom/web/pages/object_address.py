"""The address of an object in the console, and the object behind it."""

from __future__ import annotations

from typing import Any, Final

from transom.machinery.objects import Object
from transom.web.kind_index import NO_NAMESPACE, ServedKind
from transom.web.routing import Page, PageRequest

OBJECTS_PAGE: Final = Page("objects", "Objects", "/objects", ())  # its routes: `objects.PAGE`
OBJECT: Final = "/objects/{group}/{version}/{resource}/{namespace}/{name}"


async def request_kind(request: PageRequest) -> ServedKind:
    """The kind that the address names; ApiError 404 if the server does not have it."""
    params = request.params
    return await request.services.kinds.find(params["group"], params["version"], params["resource"])


def request_namespace(request: PageRequest) -> str:
    namespace = request.params["namespace"]
    return "" if namespace == NO_NAMESPACE else namespace


async def request_object(request: PageRequest) -> tuple[ServedKind, Object]:
    """The kind and the object that the address names. ApiError as the API server answers."""
    kind = await request_kind(request)
    path = kind.path(request_namespace(request), request.params["name"])
    found: Any = await request.services.api.get_json(path)
    return kind, found
