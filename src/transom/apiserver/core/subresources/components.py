"""ComponentStatus: the health of the control plane components, checked on each request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

import orjson

from transom.apiserver.core.call import (
    NO_REVISION,
    ApiCall,
    ListResult,
    ObjectResult,
    RecordListing,
)
from transom.apiserver.core.lists import selector_filter
from transom.apiserver.core.options import parse_list_options
from transom.apiserver.core.storage import Storage
from transom.machinery import errors
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.store.api import StoreRecord

Components = Callable[[], Mapping[str, str]]
"""The name of each component in Kubernetes, and its problem; empty for a healthy one."""

_STORE = "etcd-0"
_SINGULAR = errors.GroupResource("", "componentstatus")


class ComponentStatuses:
    def __init__(self, storage: Storage, components: Components) -> None:
        self._storage = storage
        self._components = components

    def get(self, call: ApiCall) -> ObjectResult:
        found = self._records(call.res.release).get(call.info.name)
        if found is None:
            if has_behaviour(call.res.release, "ComponentNotFound"):
                raise errors.not_found(_SINGULAR, call.info.name)
            raise errors.ApiError(500, "", f"Component not found: {call.info.name}")
        return ObjectResult(call.res, found)

    def list(self, call: ApiCall) -> ListResult:
        storage, res = self._storage, call.res
        matches = selector_filter(storage, res, parse_list_options(call.query, res, watch=False))
        records = self._records(res.release).values()
        chosen = [record for record in records if matches is None or matches(record)]
        return ListResult(res, RecordListing(chosen, NO_REVISION))

    def watch(self, call: ApiCall) -> NoReturn:
        parse_list_options(call.query, call.res, watch=True)
        raise errors.method_not_supported(call.res.gr, "watch")

    def _records(self, release: Release) -> dict[str, StoreRecord]:
        found = {_STORE: "", **self._components()}
        return {name: _record(name, found[name], release) for name in sorted(found)}


def _record(name: str, problem: str, release: Release) -> StoreRecord:
    plain = name != _STORE or has_behaviour(release, "EtcdStatusIsOk")
    message = "ok" if plain else '{"health":"true"}'
    how: Object = {"message": message} if not problem else {"error": problem}
    condition = {"type": "Healthy", "status": "False" if problem else "True", **how}
    meta: Object = {"name": name, "creationTimestamp": None}
    if has_behaviour(release, "OmittedZeroTimes"):
        del meta["creationTimestamp"]
    obj = {"metadata": meta, "conditions": [condition]}
    return StoreRecord(name, orjson.dumps(obj), 0, 0)
