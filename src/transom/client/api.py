"""The interface through which every component talks to an API server.

It has two implementations: `client.http` speaks HTTPS to any Kubernetes API server, and the API
server of this package has one for components in the same process. Both go through authorization,
admission and validation, and both raise `machinery.errors.ApiError` for every error response.
`ApiUnreachable` means that there was no response.

Objects from a client or an informer may be shared: copy an object before changing it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from transom.client.resources import GroupVersionResource
from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"


class ApiUnreachable(ConnectionError):
    """The server could not be reached, or its response did not arrive; a write may or may not have
    happened.
    """


class ObjectList(NamedTuple):
    items: list[Object]
    resource_version: str
    large: frozenset[int] = frozenset()  # positions of items that take long to process, if known


class WatchEvent(NamedTuple):
    type: str  # ADDED, MODIFIED, DELETED, BOOKMARK
    object: Object


class ApiWatch(Protocol):
    """A stream of changes. Iterate over it for single events, or get batches with `next`."""

    async def next(self) -> list[WatchEvent]:
        """The next events, at least one; none if the server ended the watch normally. Raises
        ApiError (410 if the resource version is too old) or ApiUnreachable.
        """

    def close(self) -> None:
        """Stops watching; safe to call twice."""

    def __aiter__(self) -> AsyncIterator[WatchEvent]: ...


class BatchedWatch:
    """Iteration over single events, for implementations of `next`."""

    async def next(self) -> list[WatchEvent]:
        raise NotImplementedError

    async def __aiter__(self) -> AsyncIterator[WatchEvent]:
        while batch := await self.next():
            for event in batch:
                yield event


class ApiClient(Protocol):
    """`namespace` is "" for cluster-scoped resources, and in `list` and `watch` also for all
    namespaces.
    """

    async def get(
        self, resource: GroupVersionResource, namespace: str, name: str, *, subresource: str = ""
    ) -> Object: ...

    async def list(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        resource_version: str = "",
    ) -> ObjectList:
        """All objects; `limit` is the page size. `resource_version` "0" allows any state that the
        server has cached, a number requires one that is not older; "" means the newest.
        """

    async def create(
        self, resource: GroupVersionResource, namespace: str, obj: Object
    ) -> Object: ...

    async def update(
        self, resource: GroupVersionResource, obj: Object, *, subresource: str = ""
    ) -> Object:
        """Replaces the object with this name; a conflict if its resourceVersion is not the newest."""

    async def update_status(self, resource: GroupVersionResource, obj: Object) -> Object: ...

    async def patch(
        self,
        resource: GroupVersionResource,
        namespace: str,
        name: str,
        body: Any,
        patch_type: str = MERGE_PATCH,
        *,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> Object:
        """`body` is the patch as a JSON value. `field_manager` and `force` are for server-side
        apply.
        """

    async def delete(
        self,
        resource: GroupVersionResource,
        namespace: str,
        name: str,
        *,
        grace: int | None = None,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
    ) -> None:
        """`uid` and `resource_version` are preconditions: a conflict if they do not match.
        `propagation` is Background, Foreground or Orphan.
        """

    async def delete_collection(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        grace: int | None = None,
        propagation: str = "",
    ) -> None: ...

    async def create_subresource(
        self,
        resource: GroupVersionResource,
        namespace: str,
        name: str,
        subresource: str,
        obj: Object,
    ) -> Object:
        """Binding, eviction, token."""

    async def watch(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        bookmarks: bool = False,
        lifetime: float = 0,
    ) -> ApiWatch:
        """The changes after `resource_version`; without one, the existing objects first. The server
        ends the watch after `lifetime` seconds, or earlier.
        """

    async def get_json(self, path: str) -> Any:
        """Any other document of the server: discovery, version."""


def is_not_found(problem: BaseException) -> bool:
    return isinstance(problem, ApiError) and problem.reason == "NotFound"


def is_already_exists(problem: BaseException) -> bool:
    return isinstance(problem, ApiError) and problem.reason == "AlreadyExists"


def is_conflict(problem: BaseException) -> bool:
    return isinstance(problem, ApiError) and problem.reason == "Conflict"


def is_expired(problem: BaseException) -> bool:
    """The requested resource version is older than the server's history."""
    return isinstance(problem, ApiError) and problem.reason in ("Expired", "Gone")


def is_method_not_supported(problem: BaseException) -> bool:
    return isinstance(problem, ApiError) and problem.reason == "MethodNotAllowed"


def has_cause(problem: BaseException, reason: str) -> bool:
    """Whether the details of an error contain this cause."""
    if not isinstance(problem, ApiError) or not problem.details:
        return False
    return any(cause.get("reason") == reason for cause in problem.details.get("causes") or ())


def is_namespace_terminating(problem: BaseException) -> bool:
    """Whether nothing can be created in the namespace any more."""
    return has_cause(problem, "NamespaceTerminating")


def is_too_large(problem: BaseException) -> bool:
    """The requested resource version is newer than the server's."""
    return has_cause(problem, "ResourceVersionTooLarge")


def error_from_status(status: Object, code: int = 0) -> ApiError:
    """The error that a Status object describes."""
    return ApiError(
        status.get("code") or code or 500,
        status.get("reason", ""),
        status.get("message", ""),
        status.get("details"),
    )


def delete_options(
    grace: int | None = None, uid: str = "", resource_version: str = "", propagation: str = ""
) -> Object:
    """The body of a delete."""
    options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    conditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}
    if conditions:
        options["preconditions"] = conditions
    if propagation:
        options["propagationPolicy"] = propagation
    return options


def list_query(
    label_selector: str = "",
    field_selector: str = "",
    limit: int = 0,
    resource_version: str = "",
    token: str = "",
) -> dict[str, str]:
    pairs = (
        ("labelSelector", label_selector),
        ("fieldSelector", field_selector),
        ("limit", str(limit or "")),
        ("resourceVersion", resource_version),
        ("continue", token),
    )
    return {name: value for name, value in pairs if value}


def watch_query(
    resource_version: str,
    label_selector: str,
    field_selector: str,
    bookmarks: bool,
    lifetime: float,
) -> dict[str, str]:
    query = {"watch": "true", **list_query(label_selector, field_selector, 0, resource_version)}
    if bookmarks:
        query["allowWatchBookmarks"] = "true"
    if lifetime:
        query["timeoutSeconds"] = str(max(1, int(lifetime)))
    return query
