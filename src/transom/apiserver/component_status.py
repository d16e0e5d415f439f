"""ComponentStatus: how the parts of the control plane are, asked when somebody wants to know. Nothing of it is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson

from transom.apiserver import lists, reads
from transom.apiserver.context import Context
from transom.apiserver.negotiate import Form
from transom.apiserver.options import list_options
from transom.apiserver.requestinfo import RequestInfo
from transom.apiserver.resources import Resource
from transom.apiserver.storage import Storage
from transom.http.messages import Request, Response
from transom.machinery import errors
from transom.machinery.errors import GroupResource
from transom.machinery.objects import Object
from transom.store.api import Record

Components = Callable[[], Mapping[str, str]]
"""Which parts there are, by their names in Kubernetes, and what is wrong with each: nothing, mostly."""

KEY = "/ComponentStatus"
_STORE = "etcd-0"


def answer(
    storage: Storage, ctx: Context, res: Resource, info: RequestInfo, request: Request, form: Form, components: Components
) -> Response:
    found = {_STORE: "", **components()}
    records = {name: _record(name, found[name]) for name in sorted(found)}
    if info.verb == "get":
        if info.name not in records:
            raise errors.not_found(GroupResource("", res.kind.plural), info.name)
        return reads.one(ctx, res, records[info.name], request, form)
    matches = lists.matcher(storage, res, list_options(request.query, res, watch=False))
    chosen = [record for record in records.values() if matches is None or matches(record)]
    return reads.many(ctx, res, lists.Listing(chosen, storage.store.revision), request, form)


def _record(name: str, problem: str) -> Record:
    message = '{"health":"true"}' if name == _STORE else "ok"
    how: Object = {"message": message} if not problem else {"error": problem}
    condition = {"type": "Healthy", "status": "False" if problem else "True", **how}
    obj = {"metadata": {"name": name, "creationTimestamp": None}, "conditions": [condition]}
    return Record(name, orjson.dumps(obj), 0, 0)
