"""The live state of the cluster for the Cluster page: one list and watch for all open pages.

It runs while a page is open. A page gets all rows, then changes. Changes of a slow page are merged
by object, so that what waits for it never exceeds the state itself.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

import orjson

from transom.client.api import ApiUnreachable
from transom.client.store import object_key
from transom.kit.clock import Clock
from transom.machinery.errors import ApiError
from transom.web.api_access import ApiAccess
from transom.web.child_jobs import Job, JobRunner
from transom.web.cluster_rows import ROWS, Row

PAGE_SIZE: Final = 250
BATCH_SECONDS: Final = 0.05  # changes are collected this long
_ROWS_IN_EVENT: Final = 1000
_RETRY_SECONDS: Final = (0.5, 1, 2, 5, 10)
_REFUSED_SECONDS: Final = 30.0
_WATCH_SECONDS: Final = 300
# Doctor looks again when a row changes, and after a while without changes: events and the state of
# nodes are not in the rows. The longer it takes, the longer it pauses.
SETTLE_SECONDS: Final = 1.0
DOCTOR_SECONDS: Final = 10.0
UNCHANGED_SECONDS: Final = 20.0
_PAUSE_FACTOR: Final = 4
_MANY_PODS: Final = 2000  # the page says that doctor is at work


class EventSink(Protocol):
    async def send(self, event: str, data: Any) -> None: ...


class FeedReader:
    """One open page: what it has not been sent yet."""

    def __init__(self) -> None:
        self._changed: dict[tuple[str, str], None] = {}
        self._reset: set[str] = set()
        self._ready = asyncio.Event()

    def mark(self, kind: str, key: str) -> None:
        if kind not in self._reset:
            self._changed[kind, key] = None
        self._ready.set()

    def mark_all(self, kind: str) -> None:
        self._reset.add(kind)
        for one in [one for one in self._changed if one[0] == kind]:
            del self._changed[one]
        self._ready.set()

    async def take(self) -> tuple[set[str], list[tuple[str, str]]]:
        """Waits for changes: kinds to send as a whole, and single objects."""
        await self._ready.wait()
        self._ready.clear()
        reset, self._reset = self._reset, set()
        changed, self._changed = list(self._changed), {}
        return reset, changed


class ClusterFeed:
    def __init__(self, api: ApiAccess, jobs: JobRunner, clock: Clock, namespace: str) -> None:
        self._api = api
        self._jobs = jobs
        self._clock = clock
        self._namespace = namespace  # where to look if the user may not list in all namespaces
        self._rows: dict[str, dict[str, Row]] = {kind: {} for kind in ROWS}
        self._states: dict[str, dict[str, Any]] = {}  # kind -> what is wrong with its list
        self._problems: list[dict[str, Any]] | None = None  # None: doctor has not looked yet
        self._readers: set[FeedReader] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._stale = asyncio.Event()  # something changed since doctor looked

    async def follow(self, events: EventSink) -> None:
        """Sends the state and then its changes, until cancelled."""
        reader = FeedReader()
        self._readers.add(reader)
        if len(self._readers) == 1:
            self._start()
        for kind in (*ROWS, "states", "problems"):
            reader.mark_all(kind)
        try:
            while True:
                await self._send(events, *await reader.take())
                await self._clock.sleep(BATCH_SECONDS)
        finally:
            self._readers.discard(reader)
            if not self._readers:
                self._stop()

    async def _send(
        self, events: EventSink, reset: set[str], changed: list[tuple[str, str]]
    ) -> None:
        for kind in (kind for kind in ROWS if kind in reset):
            rows = list(self._rows[kind].values())
            await events.send("reset", {"kind": kind, "count": len(rows)})
            for start in range(0, len(rows), _ROWS_IN_EVENT):
                await events.send(
                    "rows", {"kind": kind, "rows": rows[start : start + _ROWS_IN_EVENT]}
                )
                await asyncio.sleep(0)
        if "states" in reset:
            await events.send("states", self._states)
        if "problems" in reset and self._problems is not None:
            await events.send("problems", self._problems)
        for start in range(0, len(changed), _ROWS_IN_EVENT):
            found: dict[str, dict[str, list[Any]]] = {}
            for kind, key in changed[start : start + _ROWS_IN_EVENT]:
                entry = found.setdefault(kind, {"rows": [], "gone": []})
                row = self._rows[kind].get(key)
                if row is None:
                    entry["gone"].append(key)
                else:
                    entry["rows"].append(row)
            await events.send("changes", found)

    # ---- lists and watches ----

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep(kind)) for kind in ROWS]
        self._tasks.append(loop.create_task(self._keep_problems()))

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        for rows in self._rows.values():
            rows.clear()
        self._states = {}
        self._problems = None

    async def _keep(self, kind: str) -> None:
        """Lists and watches a kind for as long as a page is open."""
        failures = 0
        while True:
            try:
                await self._list_and_watch(kind)
                failures = 0
                wait = 0.0
            except ApiError as problem:
                failures += 1
                refused = problem.code in (401, 403, 404)
                wait = _REFUSED_SECONDS if refused else _retry_seconds(failures)
                if problem.code == 410:
                    wait = 0.0  # the watch was too slow: list again
                else:
                    self._set_state(kind, problem.message, problem.code)
            except ApiUnreachable as problem:
                failures += 1
                wait = _retry_seconds(failures)
                self._set_state(kind, str(problem), 0)
            await self._clock.sleep(wait)

    async def _list_and_watch(self, kind: str) -> None:
        path, namespaced, make_row = ROWS[kind]
        try:
            version = await self._list(kind, path)
        except ApiError as problem:
            if problem.code != 403 or not namespaced:
                raise
            path = path.replace("/v1/", f"/v1/namespaces/{self._namespace}/")
            version = await self._list(kind, path)
            self._set_state(kind, f"only the namespace {self._namespace}: {problem.message}", 403)
        else:
            self._set_state(kind, "", 0)
        while True:
            query = {
                "watch": "true",
                "resourceVersion": version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(_WATCH_SECONDS),
            }
            stream = await self._api.open_stream(path, query)
            try:
                while lines := await stream.read_lines():
                    for line in lines:
                        if line:
                            version = self._apply(kind, orjson.loads(line), make_row) or version
                    await asyncio.sleep(0)
            finally:
                stream.close()

    async def _list(self, kind: str, path: str) -> str:
        """Replaces the rows of a kind; returns the resource version of the list."""
        make_row = ROWS[kind][2]
        found: dict[str, Row] = {}
        token = ""
        while True:
            query = {"limit": str(PAGE_SIZE), **({"continue": token} if token else {})}
            page = await self._api.get_json(path, query)
            for at, item in enumerate(page.get("items") or ()):
                found[object_key(item)] = make_row(item)
                if at % 50 == 49:
                    await asyncio.sleep(0)
            token = page["metadata"].get("continue") or ""
            if not token:
                break
        self._rows[kind] = found
        for reader in self._readers:
            reader.mark_all(kind)
        self._stale.set()
        return str(page["metadata"].get("resourceVersion") or "")

    def _apply(self, kind: str, event: dict[str, Any], make_row: Any) -> str:
        """Applies a watch event; returns its resource version."""
        obj = event["object"]
        if event["type"] == "ERROR":
            raise ApiError(obj.get("code") or 500, obj.get("reason", ""), obj.get("message", ""))
        version = str(obj["metadata"].get("resourceVersion") or "")
        if event["type"] == "BOOKMARK":
            return version
        key, rows = object_key(obj), self._rows[kind]
        if event["type"] == "DELETED":
            rows.pop(key, None)
        else:
            row = make_row(obj)
            if rows.get(key) == row:
                return version  # nothing that the page shows
            rows[key] = row
        for reader in self._readers:
            reader.mark(kind, key)
        self._stale.set()
        return version

    def _set_state(self, kind: str, message: str, code: int) -> None:
        before = self._states.get(kind)
        after = {"message": message, "code": code} if message else None
        if before == after:
            return
        self._states.pop(kind, None)
        if after:
            self._states[kind] = after
        for reader in self._readers:
            reader.mark_all("states")

    # ---- doctor ----

    async def _keep_problems(self) -> None:
        while True:
            await self._wait_for_changes()
            pods = len(self._rows["pods"])
            if self._problems is None:  # the lists may still be incomplete
                self._set_state("doctor", "doctor examines the cluster", 0)
            elif pods > _MANY_PODS:
                self._set_state("doctor", f"doctor examines the cluster ({pods} pods)", 0)
            started = self._clock.monotonic()
            try:
                self._problems = await self._jobs.run(Job.DOCTOR)
                self._set_state("doctor", "", 0)
            except ApiError as problem:
                text = f"doctor cannot examine the cluster: {problem.message}"
                self._set_state("doctor", text, 0)
            for reader in self._readers:
                reader.mark_all("problems")
            took = self._clock.monotonic() - started
            await self._clock.sleep(max(DOCTOR_SECONDS, _PAUSE_FACTOR * took))

    async def _wait_for_changes(self) -> None:
        """Waits for a change, at most some seconds after doctor's first look, and for the end of a
        burst of changes.
        """
        if self._problems is None:
            await self._stale.wait()
        elif not self._stale.is_set():
            changed = asyncio.ensure_future(self._stale.wait())
            passed = asyncio.ensure_future(self._clock.sleep(UNCHANGED_SECONDS - DOCTOR_SECONDS))
            try:
                await asyncio.wait((changed, passed), return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
                passed.cancel()
        self._stale.clear()
        await self._clock.sleep(SETTLE_SECONDS)


def _retry_seconds(failures: int) -> float:
    return float(_RETRY_SECONDS[min(failures, len(_RETRY_SECONDS)) - 1])
