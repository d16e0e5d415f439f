"""The endpoints of the API server below /transom/states: a test saves the objects of its cluster and
restores them in milliseconds, while everything keeps running.

A restore is a set of ordinary writes: watchers see which objects were added, changed and deleted.
What nodes report stays as it is. These paths are authorized like any other non-resource path, so
only the cluster's admin may use them.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from transom.http.messages import Answer, HttpRequest, HttpResponse
from transom.kit.clock import Clock
from transom.kit.uuids import random_uuid
from transom.store.api import Store, StoreRecord

STATES_ROOT = "/transom/states"
MAX_SAVED_STATES = 64
# Written all the time by nodes that keep running.
_KEPT_PREFIXES = ("leases.coordination.k8s.io/kube-node-lease/",)
_NODE_BUCKETS = ("nodes/", "csinodes.storage.k8s.io/")  # never deleted: their nodes still run
_FINISHED = ("Succeeded", "Failed")

Services = Callable[[bytes | None, bytes | None], None]
"""Called with a service before and after a change: its addresses and ports are allocated."""


class SavedStates:
    def __init__(
        self, store: Store, clock: Clock, rng: random.Random, on_service: Services
    ) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._on_service = on_service
        self._saved: dict[str, dict[str, StoreRecord]] = {}
        self._number = 0

    async def __call__(self, request: HttpRequest) -> Answer:
        if self._store.follows:
            return _answer(409, {"message": "a cluster on etcd cannot restore a saved state"})
        parts = request.path.removeprefix(STATES_ROOT).strip("/").split("/")
        match request.method, parts:
            case "POST", [""]:
                return _answer(201, self._save())
            case "POST", [name, "restore"] if name in self._saved:
                return _answer(200, await self._restore(self._saved[name]))
            case "DELETE", [name]:
                self._saved.pop(name, None)
                return _answer(200, {})
        return _answer(404, {"message": f"there is no {request.method} {request.path}"})

    def _save(self) -> dict[str, Any]:
        while len(self._saved) >= MAX_SAVED_STATES:
            del self._saved[next(iter(self._saved))]
        self._number += 1
        name = str(self._number)
        self._saved[name] = self._records()
        return {"id": name, "revision": self._store.revision, "objects": len(self._saved[name])}

    def _records(self) -> dict[str, StoreRecord]:
        found = self._store.snapshot()
        return {record.key: record for record in found.records(0, found.count)}

    async def _restore(self, saved: dict[str, StoreRecord]) -> dict[str, Any]:
        """All writes are accepted before anything else runs."""
        now = self._clock.time()
        current = {  # with accepted writes that are not durable yet: these writes follow them
            key: record
            for key in self._records()
            if (record := self._store.latest(key)) is not None
        }
        wanted = {
            key: record
            for key, record in saved.items()
            if (record.expires is None or record.expires > now)
            and not key.startswith(_KEPT_PREFIXES)
        }
        deletions = [
            self._delete(record)
            for key, record in current.items()
            if key not in saved and not key.startswith((*_KEPT_PREFIXES, *_NODE_BUCKETS))
        ]
        plan = RestorePlan(wanted, current, self._rng)
        deletions += [self._store.delete(key) for key in plan.replaced]
        puts = {
            key: self._put(record, plan.content(record), now)
            for key, record in wanted.items()
            if plan.is_affected(record)
        }
        for write in (*deletions, *puts.values()):
            await write
        for key, put in puts.items():
            saved[key] = await put  # the next restore compares with what this one wrote
        return {"revision": self._store.revision, "changes": len(deletions) + len(puts)}

    def _delete(self, record: StoreRecord) -> Awaitable[object]:
        if record.key.startswith("services/"):
            self._on_service(record.value, None)
        return self._store.delete(record.key)

    def _put(self, record: StoreRecord, obj: Any, now: float) -> asyncio.Future[StoreRecord]:
        if record.key.startswith("services/"):
            before = self._store.latest(record.key)
            self._on_service(None if before is None else before.value, orjson.dumps(obj))

        def encode(revision: int) -> bytes:
            if "metadata" in obj:
                obj["metadata"]["resourceVersion"] = str(revision)
            return orjson.dumps(obj)

        ttl = None if record.expires is None else record.expires - now
        return self._store.put(record.key, encode, ttl=ttl)


class RestorePlan:
    """What becomes of each saved object. One that was deleted since is created again with a new uid,
    as Kubernetes never uses a uid twice; references to it follow.
    """

    def __init__(
        self,
        wanted: dict[str, StoreRecord],
        current: dict[str, StoreRecord],
        rng: random.Random,
    ) -> None:
        self._current = current
        self.replaced: list[str] = []  # keys of other objects with the same names
        uids: dict[bytes, bytes] = {}
        for key, record in wanted.items():
            before = current.get(key)
            if before is record:
                continue
            obj = orjson.loads(record.value)
            if before is not None:
                if not _is_other(key, orjson.loads(before.value), obj):
                    continue
                self.replaced.append(key)
            uid = (obj.get("metadata") or {}).get("uid")
            if uid:
                uids[uid.encode()] = random_uuid(rng).encode()
        self._uids = uids
        self._gone = set(self.replaced)
        self._pattern = re.compile(b"|".join(map(re.escape, uids))) if uids else None

    def is_affected(self, record: StoreRecord) -> bool:
        before = self._current.get(record.key)
        if record.key in self._gone or before is None:
            return True
        if self._pattern is not None and self._pattern.search(record.value):
            return True
        return before is not record and not _same(orjson.loads(before.value), self.content(record))

    def content(self, record: StoreRecord) -> Any:
        value = record.value
        if self._pattern is not None:
            value = self._pattern.sub(lambda found: self._uids[found[0]], value)
        obj = orjson.loads(value)
        key = record.key
        before = None if key in self._gone else self._current.get(key)
        old = None if before is None else orjson.loads(before.value)
        if key.startswith("pods/"):
            _adjust_pod(obj, old)
        elif key.startswith("nodes/") and old is not None:
            obj["status"] = old.get("status", {})
        return obj


def _adjust_pod(pod: Any, old: Any) -> None:
    """A pod that its node still runs keeps its status; one that it no longer runs starts again."""
    if not pod["spec"].get("nodeName") or _is_finished(pod):
        return
    status = pod.get("status") or {}
    if old is not None:
        pod["status"] = old.get("status", {})
        return
    pod["status"] = {"phase": "Pending"}
    if "qosClass" in status:
        pod["status"]["qosClass"] = status["qosClass"]


def _is_other(key: str, old: Any, new: Any) -> bool:
    """Whether an object has to be deleted before the saved one can come back."""
    before, after = old.get("metadata") or {}, new.get("metadata") or {}
    if before.get("uid") != after.get("uid"):
        return True
    if not key.startswith("pods/"):
        return False
    # A kubelet does not take back that it stopped a pod.
    return (
        ("deletionTimestamp" in before) != ("deletionTimestamp" in after)
        or old["spec"].get("nodeName") != new["spec"].get("nodeName")
        or _is_finished(old) != _is_finished(new)
    )


def _is_finished(pod: Any) -> bool:
    return (pod.get("status") or {}).get("phase") in _FINISHED


def _same(old: Any, new: Any) -> bool:
    """Whether two states differ in nothing but their resource version."""
    if "metadata" not in old or "metadata" not in new:
        return bool(old == new)
    new["metadata"]["resourceVersion"] = old["metadata"].get("resourceVersion")
    return bool(old == new)


def _answer(status: int, value: dict[str, Any]) -> HttpResponse:
    return HttpResponse(
        status, [(b"Content-Type", b"application/json")], orjson.dumps(value) + b"\n"
    )
