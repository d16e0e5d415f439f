"""The verbs get, list and watch. All are served from memory without waiting, except long lists."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace

from transom.apiserver.core import lists
from transom.apiserver.core.call import (
    ApiCall,
    ListResult,
    ObjectResult,
    RecordListing,
    WatchResult,
)
from transom.apiserver.core.converted_lists import list_readable
from transom.apiserver.core.options import (
    ListOptions,
    first_query_value,
    parse_list_options,
    parse_revision,
)
from transom.apiserver.core.requestinfo import Authorized
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.storage import Storage
from transom.machinery import errors
from transom.machinery.field_selectors import FieldSelector, FieldTerm
from transom.store.api import StoreRecord


def check_revision(storage: Storage, call: ApiCall) -> None:
    """Raises the error for a `resourceVersion` that is no number, or that no object has yet."""
    if call.query:
        wanted = parse_revision(first_query_value(call.query, "resourceVersion"))
        if wanted > storage.store.revision:
            raise lists.too_large_resource_version(wanted, storage.store.revision)


def get_object(storage: Storage, call: ApiCall) -> ObjectResult | Awaitable[ObjectResult]:
    res, info = call.res, call.info
    check_revision(storage, call)
    record = storage.get(res, info.namespace, info.name)
    if res.ops.converter is not None:
        return _get_converted(storage, res, record)
    return ObjectResult(res, record)


async def _get_converted(storage: Storage, res: Resource, record: StoreRecord) -> ObjectResult:
    return ObjectResult(res, await storage.readable(res, record))


def list_objects(storage: Storage, call: ApiCall) -> ListResult | Awaitable[ListResult]:
    res, info = call.res, call.info
    options = named_options(parse_list_options(call.query, res, watch=False), info)
    if res.ops.converter is not None:
        return _list_converted(storage, res, info.namespace, options)
    steps = lists.list_steps(storage, res, info.namespace, options)
    try:
        next(steps)
    except StopIteration as done:
        listing: RecordListing = done.value
        return ListResult(res, listing)
    except lists.PastNeeded as needed:
        return _list_past(storage, res, info.namespace, options, needed)
    return _list_in_turns(res, steps)


async def _list_past(
    storage: Storage,
    res: Resource,
    namespace: str,
    options: ListOptions,
    needed: lists.PastNeeded,
) -> ListResult:
    return ListResult(res, await lists.list_past(storage, res, namespace, options, needed))


async def _list_in_turns(res: Resource, steps: lists.Steps) -> ListResult:
    return ListResult(res, await lists.finish_list(steps))


async def _list_converted(
    storage: Storage, res: Resource, namespace: str, options: ListOptions
) -> ListResult:
    return ListResult(res, await list_readable(storage, res, namespace, options))


def watch_objects(storage: Storage, call: ApiCall) -> WatchResult:
    res, info = call.res, call.info
    options = parse_list_options(call.query, res, watch=True, watch_list=storage.watch_list)
    options = named_options(options, info)
    return WatchResult(res, info.namespace, options, start_revision(storage, options))


def named_options(options: ListOptions, info: Authorized) -> ListOptions:
    """The options of a list or watch that was authorized for one name: they select only that object.

    The name comes from the path (`/api/v1/watch/.../NAME`) or from the field selector itself.
    """
    name = info.name
    if not name:
        return options
    fields = options.fields
    if fields is None:
        return replace(options, fields=FieldSelector((FieldTerm("metadata.name", True, name),)))
    if fields.exact("metadata.name") != name:
        raise errors.bad_request("fieldSelector metadata.name doesn't match requested name")
    return options


def start_revision(storage: Storage, options: ListOptions) -> int | None:
    """Where a watch starts: None to start with the current state as ADDED events."""
    wanted = parse_revision(options.version)
    if options.send_initial_events:
        if wanted > storage.store.revision:
            raise lists.too_large_resource_version(wanted, storage.store.revision)
        return None
    if not wanted:
        return storage.store.revision if options.send_initial_events is False else None
    return wanted
