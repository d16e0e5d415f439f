"""Calls the function for the verb of an authorized call, from tables (`serving/verbs.py`)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from enum import Enum

from transom.apiserver.core.call import ApiCall, Result, VerbHandler
from transom.apiserver.core.options import first_query_value
from transom.kit.named_tuple import NamedTuple
from transom.machinery import errors
from transom.machinery.integers import parse_int
from transom.store.api import Store

_UPDATES = ("update", "patch")
_READS = ("get", "list", "watch")


class Scope(Enum):
    """What a verb operates on."""

    ANY = "any"
    OBJECT = "object"  # needs a name
    COLLECTION = "collection"  # has no name, but needs the namespace of a namespaced resource


class Verb(NamedTuple):
    handler: VerbHandler
    scope: Scope = Scope.ANY


class VerbTable(NamedTuple):
    stored: Mapping[str, Verb]  # by verb
    subresources: Mapping[tuple[str, str], Mapping[str, VerbHandler]]  # by kind and subresource
    unstored: Mapping[str, Mapping[str, VerbHandler]]  # by kind


class Dispatcher:
    def __init__(self, table: VerbTable, store: Store) -> None:
        self._followed = store if store.follows else None
        self._stored = table.stored
        self._subresources = table.subresources
        self._unstored = table.unstored

    def __call__(self, call: ApiCall) -> Result | Awaitable[Result]:
        """The result of a call whose resource is known; raises ApiError."""
        if self._followed is not None and _must_be_current(call, self._followed):
            return self._after_sync(call, self._followed)
        return self.find_handler(call)(call)

    async def _after_sync(self, call: ApiCall, store: Store) -> Result:
        await store.sync()
        result = self.find_handler(call)(call)
        return await result if isinstance(result, Awaitable) else result

    def find_handler(self, call: ApiCall) -> VerbHandler:
        """Raises 404 or 405 if there is none: before the response format is negotiated."""
        if call.info.subresource:
            return self._subresource(call)
        if not call.res.stored:
            return self._unstored_resource(call)
        verb = self._stored.get(call.info.verb)
        if verb is None:
            raise errors.generic_method_not_allowed()
        if call.info.verb != "get":
            _check_scope(verb.scope, call)
        return verb.handler

    def _subresource(self, call: ApiCall) -> VerbHandler:
        info, res = call.info, call.res
        if info.subresource not in res.subresources:
            if res.custom:
                raise errors.not_found(res.gr, info.name)
            raise errors.generic_not_found()
        handlers = self._subresources.get((res.kind.key, info.subresource))
        if handlers is None:
            handlers = self._subresources.get(("*", info.subresource), {})
        handler = handlers.get(info.verb)
        if handler is not None:
            return handler
        if info.verb == "get" and "get" in res.subresources[info.subresource].verbs:
            return self._stored["get"].handler
        if res.custom:
            raise errors.method_not_supported(res.gr, info.verb)
        raise errors.generic_method_not_allowed()

    def _unstored_resource(self, call: ApiCall) -> VerbHandler:
        handler = self._unstored.get(call.res.kind.key, {}).get(call.info.verb)
        if handler is None or (call.info.verb == "create" and call.info.name):
            raise errors.generic_method_not_allowed()
        return handler


def _must_be_current(call: ApiCall, store: Store) -> bool:
    """Whether the call may not be served from data that is behind what other servers wrote: reads
    without a resourceVersion, or of a newer one, and everything that changes an existing object.
    """
    verb, query = call.info.verb, call.query
    if verb not in _READS:
        return verb != "create" or bool(call.info.subresource) or "dryRun" in (query or ())
    if not query:
        return True
    version = first_query_value(query, "resourceVersion")
    if not version or first_query_value(query, "continue"):
        return True
    return version.isdecimal() and parse_int(version) > store.revision


def _check_scope(scope: Scope, call: ApiCall) -> None:
    """Raises 405 for a verb that the resource, or this form of the path, does not support."""
    info, res = call.info, call.res
    if res.custom and info.verb in _UPDATES and not info.name:
        raise errors.internal("name must be provided")
    fits = info.verb in res.verbs
    if scope is Scope.OBJECT:
        fits = fits and bool(info.name)
    elif scope is Scope.COLLECTION:
        fits = fits and not info.name and bool(info.namespace or not res.kind.namespaced)
    if not fits:
        raise errors.generic_method_not_allowed()
