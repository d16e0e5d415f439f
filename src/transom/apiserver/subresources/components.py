"""ComponentStatus: how the parts of the control plane are, asked when somebody wants to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson

from transom.apiserver import lists, reads
from transom.apiserver.options import list_options
from transom.apiserver.subresources.call import Call
from transom.http.messages import Response
from transom.machinery import errors
from transom.machinery.objects import Object
from transom.store.api import Record

Components = Callable[[], Mapping[str, str]]
"""Which parts there are, by their names in Kubernetes, and what is wrong with each: nothing, mostly."""

_STORE = "etcd-0"


def get(call: Call) -> Response:
    found = _records(call).get(call.info.name)
    if found is None:
        raise errors.not_found(call.res.gr, call.info.name)
    return reads.one(call.ctx, call.res, found, call.request, call.form)


def list_(call: Call) -> Response:
    storage, res = call.server.storage, call.res
    matches = lists.matcher(storage, res, list_options(call.request.query, res, watch=False))
    chosen = [record for record in _records(call).values() if matches is None or matches(record)]
    return reads.many(call.ctx, res, lists.Listing(chosen, storage.store.revision), call.request, call.form)


def _records(call: Call) -> dict[str, Record]:
    found = {_STORE: "", **call.server.options.components()}
    return {name: _record(name, found[name]) for name in sorted(found)}


def _record(name: str, problem: str) -> Record:
    message = '{"health":"true"}' if name == _STORE else "ok"
    how: Object = {"message": message} if not problem else {"error": problem}
    condition = {"type": "Healthy", "status": "False" if problem else "True", **how}
    obj = {"metadata": {"name": name, "creationTimestamp": None}, "conditions": [condition]}
    return Record(name, orjson.dumps(obj), 0, 0)
