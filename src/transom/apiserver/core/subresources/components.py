"""ComponentStatus: the health of the control plane components, checked on each request."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson

from transom.apiserver.core.call import ApiCall, ListResult, ObjectResult, RecordListing
from transom.apiserver.core.lists import selector_filter
from transom.apiserver.core.options import parse_list_options
from transom.apiserver.core.storage import Storage
from transom.machinery import errors
from transom.machinery.objects import Object
from transom.store.api import StoreRecord

Components = Callable[[], Mapping[str, str]]
"""The name of each component in Kubernetes, and its problem; empty for a healthy one."""

_STORE = "etcd-0"


class ComponentStatuses:
    def __init__(self, storage: Storage, components: Components) -> None:
        self._storage = storage
        self._components = components

    def get(self, call: ApiCall) -> ObjectResult:
        found = self._records().get(call.info.name)
        if found is None:
            raise errors.not_found(call.res.gr, call.info.name)
        return ObjectResult(call.res, found)

    def list(self, call: ApiCall) -> ListResult:
        storage, res = self._storage, call.res
        matches = selector_filter(storage, res, parse_list_options(call.query, res, watch=False))
        records = self._records().values()
        chosen = [record for record in records if matches is None or matches(record)]
        return ListResult(res, RecordListing(chosen, storage.store.revision))

    def _records(self) -> dict[str, StoreRecord]:
        found = {_STORE: "", **self._components()}
        return {name: _record(name, found[name]) for name in sorted(found)}


def _record(name: str, problem: str) -> StoreRecord:
    message = '{"health":"true"}' if name == _STORE else "ok"
    how: Object = {"message": message} if not problem else {"error": problem}
    condition = {"type": "Healthy", "status": "False" if problem else "True", **how}
    obj = {"metadata": {"name": name, "creationTimestamp": None}, "conditions": [condition]}
    return StoreRecord(name, orjson.dumps(obj), 0, 0)
