"""A call of the API and its results.

Transports (HTTP, in-process) extend `ApiCall` and decide how a result is returned to the client;
verbs depend on this module only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.options import ListOptions, Query
from transom.apiserver.core.requestinfo import Authorized
from transom.apiserver.core.resources import Resource
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.store.api import StoreRecord


class ObjectResult(NamedTuple):
    """One stored object of the resource. `code` is the status code: 200, 201, 202."""

    res: Resource
    record: StoreRecord
    code: int = 200


class DocumentResult(NamedTuple):
    """An object that is not stored under the resource of the call: a Status, a Scale."""

    obj: Object
    code: int = 200
    has_metadata: bool = False  # can be shown as PartialObjectMetadata


NO_REVISION = 0  # of lists that the store does not have: their metadata is empty


class RecordListing(NamedTuple):
    """Records of one state of the store. `token`: where to continue."""

    records: Collection[StoreRecord]
    revision: int
    token: str = ""
    remaining: int | None = None


class ListResult(NamedTuple):
    res: Resource
    listing: RecordListing


class WatchResult(NamedTuple):
    """A watch to start. `since` None: first all existing objects, as ADDED."""

    res: Resource
    namespace: str
    options: ListOptions
    since: int | None


class EmptyResult(NamedTuple):
    """Nothing to return: the log of a pod without a node."""


class PodLogs(NamedTuple):
    pod: Object
    container: str
    options: Mapping[str, Any]


class PodCommand(NamedTuple):
    """exec or attach."""

    subresource: str
    pod: Object
    container: str
    options: Mapping[str, Any]


class PodPortForward(NamedTuple):
    pod: Object
    ports: Sequence[int]


class ProxyTarget(NamedTuple):
    """The target of the proxy subresource (a pod, service or node), and the path."""

    resource: str
    namespace: str
    name: str
    path: str


class ConnectResult(NamedTuple):
    """An admitted connection; the transport opens it."""

    target: PodLogs | PodCommand | PodPortForward | ProxyTarget


Result = ObjectResult | DocumentResult | ListResult | WatchResult | EmptyResult | ConnectResult


class ApiCall:
    """`info`, `ctx` and `res` are set once the call is authorized and its resource is known."""

    __slots__ = ("body", "content_type", "ctx", "info", "query", "res")

    info: Authorized
    ctx: RequestContext
    res: Resource

    query: Query
    body: bytes
    content_type: str


VerbHandler = Callable[[ApiCall], Result | Awaitable[Result]]
