"""Clients that use a cluster while it fails, and write down what they saw."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from tests.jepsen.history import (
    CREATE,
    DELETE,
    LIST,
    OK,
    PAGE,
    PATCH,
    READ,
    REFUSED,
    UPDATE,
    Change,
    Operation,
    WatchLog,
)

from transom.client.api import ApiUnreachable
from transom.client.connection import ApiConnection, open_api_connection
from transom.client.kubeconfig import RestConfig
from transom.kit.http_message import encode_request

_CALL_SECONDS = 6.0
_PAUSE_SECONDS = 0.002
_RETRY_SECONDS = 0.1  # after a call without an answer
_SILENT_SECONDS = 5  # then the server may be paused: the watch is opened again
_PAGE = 3
MAPS, SERVICES, TEMPLATES = "configmaps", "services", "podtemplates"


@dataclass(frozen=True, slots=True)
class WorkloadSize:
    """How many objects of each kind the clients share: few, so that they meet."""

    maps: int
    services: int
    templates: int
    quota: int  # PodTemplates that may exist at the same time

    @classmethod
    def for_clients(cls, clients: int) -> WorkloadSize:
        return cls(
            maps=max(6, clients // 2),
            services=max(8, clients // 2),
            templates=max(9, clients // 2),
            quota=max(4, clients // 5),
        )


class ConnectionClient:
    """Connections to several servers, of which it uses one until that fails or `move` is called.
    Repeats nothing.
    """

    def __init__(self, targets: Sequence[RestConfig], rng: random.Random) -> None:
        self._targets = targets
        self._rng = rng
        self._connections: dict[int, ApiConnection] = {}
        self._at = rng.randrange(len(targets))

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and decoded answer; OSError if there is none."""
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                connection = await self._connected()
                answer = await connection.exchange(self.request(method, path, body))
        except (OSError, ApiUnreachable):
            self._drop(self._at)
            self.move()
            raise
        return answer.status, orjson.loads(answer.body) if answer.body else {}

    async def stream(self, path: str) -> tuple[int, ApiConnection]:
        async with asyncio.timeout(_CALL_SECONDS):
            connection = await self._connected()
            answer = await connection.open_stream(self.request("GET", path))
        return answer.status, connection

    async def _connected(self) -> ApiConnection:
        connection = self._connections.get(self._at)
        if connection is None or not connection.usable:
            connection = await open_api_connection(
                self._targets[self._at], lambda _connection: None
            )
            self._connections[self._at] = connection
        return connection

    @property
    def where(self) -> str:
        return str(self._targets[self._at].port)

    def move(self) -> None:
        """Continues at any of the servers."""
        self._at = self._rng.randrange(len(self._targets))

    def request(self, method: str, path: str, body: Any = None) -> bytes:
        headers = [*self._targets[self._at].request_headers(), ("Accept", "application/json")]
        if body is None:
            return encode_request(method, path, headers)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers.append(("Content-Type", kind))
        return encode_request(method, path, headers, orjson.dumps(body))

    def _drop(self, at: int) -> None:
        connection = self._connections.pop(at, None)
        if connection is not None:
            connection.abort()

    def close(self) -> None:
        for at in list(self._connections):
            self._drop(at)


@dataclass(slots=True)
class History:
    operations: list[Operation]
    watches: list[WatchLog]
    unavailable: int = 0  # calls without an answer, or with a server error
    faults: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)  # of the calls without success


class WorkloadClient:
    """Random operations on a few ConfigMaps and Services of one namespace."""

    def __init__(
        self,
        name: str,
        namespace: str,
        size: WorkloadSize,
        client: ConnectionClient,
        rng: random.Random,
        history: History,
    ) -> None:
        self._name = name
        self._root = f"/api/v1/namespaces/{namespace}"
        self._size = size
        self._client = client
        self._rng = rng
        self._history = history
        self._count = 0
        self._known: dict[str, int] = {}  # newest revision that this client saw

    async def run(self, until: asyncio.Event) -> None:
        try:
            while not until.is_set():
                step = self._rng.choices(
                    (
                        self._read,
                        self._update,
                        self._patch,
                        self._create,
                        self._delete,
                        self._list,
                        self._list_pages,
                        self._grant,
                        self._fill_quota,
                    ),
                    (60, 26, 6, 14, 8, 8, 3, 10, 8),
                )[0]
                await step()
                await asyncio.sleep(self._rng.random() * _PAUSE_SECONDS)
        finally:
            self._client.close()

    def _value(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"

    def _key(self) -> str:
        return f"{MAPS}/k{self._rng.randrange(self._size.maps)}"

    async def _call(
        self, operation: Operation, method: str, path: str, body: Any = None
    ) -> Any | None:
        """The answer of a call that succeeded."""
        operation.start = time.monotonic()
        operation.where = self._client.where
        self._history.operations.append(operation)
        try:
            status, found = await self._client.call(method, self._root + path, body)
        except (OSError, ValueError) as problem:
            operation.end = time.monotonic()
            await self._failed(type(problem).__name__)
            return None
        operation.end = time.monotonic()
        if status < 300:
            operation.outcome = OK
            return found
        if status < 500 and status not in (408, 429):
            operation.outcome = REFUSED
            if status == 404 and operation.kind == READ:
                operation.outcome = OK
            return None
        await self._failed(f"{status} {found.get('message', '')[:80]}")
        return None

    async def _failed(self, text: str) -> None:
        self._history.unavailable += 1
        self._history.errors[text] += 1
        await asyncio.sleep(_RETRY_SECONDS)

    async def _read(self) -> None:
        key = self._key()
        cached = self._rng.random() < 0.2
        operation = Operation(READ, key, 0.0, linearizable=not cached)
        found = await self._call(
            operation, "GET", f"/{key}" + ("?resourceVersion=0" if cached else "")
        )
        if found is not None:
            operation.value = content_of(found)
            operation.revision = revision_of(found)
            self._known[key] = operation.revision

    async def _list(self) -> None:
        resource = self._rng.choice((MAPS, MAPS, SERVICES, TEMPLATES))
        cached = self._rng.random() < 0.3
        operation = Operation(LIST, f"{resource}/", 0.0, linearizable=not cached)
        found = await self._call(
            operation, "GET", f"/{resource}" + ("?resourceVersion=0" if cached else "")
        )
        if found is not None:
            take_list(operation, resource, found)

    async def _list_pages(self) -> None:
        """Each page comes from any server, and all from the revision of the first."""
        resource = self._rng.choice((MAPS, SERVICES, TEMPLATES))
        whole = Operation(LIST, f"{resource}/", 0.0)
        token = ""
        while True:
            page = Operation(PAGE, whole.key, 0.0)
            path = f"/{resource}?limit={_PAGE}" + (f"&continue={token}" if token else "")
            found = await self._call(page, "GET", path)
            if found is None:
                return
            whole.start = whole.start or page.start
            whole.where += f"{page.where} "
            if whole.revision not in (0, revision_of(found)):
                whole.items = {"": (whole.revision, f"a page at {revision_of(found)}")}
                break
            pages = {**whole.items}
            take_list(whole, resource, found)
            whole.items = {**pages, **whole.items}
            token = found["metadata"].get("continue", "")
            if not token:
                break
            self._client.move()
        # The first page is linearizable, the others are older by intention.
        whole.end, whole.outcome = time.monotonic(), OK
        self._history.operations.append(whole)

    async def _patch(self) -> None:
        """Without a resourceVersion: it applies to whatever is there."""
        key = self._key()
        operation = Operation(PATCH, key, 0.0, value=self._value())
        found = await self._call(operation, "PATCH", f"/{key}", {"data": {"v": operation.value}})
        if found is not None:
            operation.revision = self._known[key] = revision_of(found)

    async def _create(self) -> None:
        key = self._key()
        operation = Operation(CREATE, key, 0.0, value=self._value())
        body = {"metadata": {"name": key.partition("/")[2]}, "data": {"v": operation.value}}
        found = await self._call(operation, "POST", f"/{MAPS}", body)
        if found is not None:
            operation.revision = self._known[key] = revision_of(found)
            operation.uid = found["metadata"]["uid"]

    async def _update(self) -> None:
        key = self._key()
        base = self._known.get(key, 0)
        if not base:
            await self._read()
            return
        operation = Operation(UPDATE, key, 0.0, value=self._value(), base=base)
        meta = {"name": key.partition("/")[2], "resourceVersion": str(base)}
        body = {"metadata": meta, "data": {"v": operation.value}}
        found = await self._call(operation, "PUT", f"/{key}", body)
        if found is not None:
            operation.revision = self._known[key] = revision_of(found)
        else:
            self._known.pop(key, None)

    async def _delete(self, key: str = "") -> None:
        key = key or self._key()
        operation = Operation(DELETE, key, 0.0)
        found = await self._call(operation, "DELETE", f"/{key}")
        self._known.pop(key, None)
        if found is not None:
            details = found.get("details") or found["metadata"]
            operation.uid = details["uid"]

    async def _grant(self) -> None:
        """Services: their addresses and ports are granted by the servers."""
        key = f"{SERVICES}/s{self._rng.randrange(self._size.services)}"
        if self._rng.random() < 0.4:
            await self._delete(key)
            return
        operation = Operation(CREATE, key, 0.0, value=self._value())
        body = {
            "metadata": {"name": key.partition("/")[2], "annotations": {"v": operation.value}},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]},
        }
        if self._rng.random() < 0.3:  # ask for one that others ask for too
            body["spec"]["clusterIP"] = f"10.96.77.{self._rng.randrange(1, 4)}"  # type: ignore[index]
        found = await self._call(operation, "POST", f"/{SERVICES}", body)
        if found is not None:
            operation.revision = revision_of(found)
            operation.uid = found["metadata"]["uid"]

    async def _fill_quota(self) -> None:
        """PodTemplates: a quota limits their number, and no controller changes them."""
        key = f"{TEMPLATES}/t{self._rng.randrange(self._size.templates)}"
        if self._rng.random() < 0.35:
            await self._delete(key)
            return
        operation = Operation(CREATE, key, 0.0, value=self._value())
        body = {
            "metadata": {"name": key.partition("/")[2], "annotations": {"v": operation.value}},
            "template": pod_template(),
        }
        found = await self._call(operation, "POST", f"/{TEMPLATES}", body)
        if found is not None:
            operation.revision = revision_of(found)
            operation.uid = found["metadata"]["uid"]


def pod_template() -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def revision_of(obj: Mapping[str, Any]) -> int:
    return int(obj["metadata"]["resourceVersion"])


def content_of(obj: Mapping[str, Any]) -> str:
    data: dict[str, str] = obj.get("data") or obj["metadata"].get("annotations") or {}
    return data.get("v", "")


def grants_of(obj: Mapping[str, Any]) -> tuple[str, ...]:
    spec = obj.get("spec") or {}
    ports = [f"port {port['nodePort']}" for port in spec.get("ports") or () if "nodePort" in port]
    return tuple(sorted([*ports, *([spec["clusterIP"]] if "clusterIP" in spec else [])]))


def describe_object(obj: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    return content_of(obj), obj["metadata"]["uid"], grants_of(obj)


def take_list(operation: Operation, resource: str, found: Mapping[str, Any]) -> None:
    operation.revision = revision_of(found)
    operation.items = {
        f"{resource}/{item['metadata']['name']}": (revision_of(item), content_of(item))
        for item in found["items"]
        if content_of(item)
    }


class Watcher:
    """Follows one resource at one server, or through the load balancer, until it sees the end."""

    def __init__(
        self,
        name: str,
        namespace: str,
        resource: str,
        targets: Sequence[RestConfig],
        rng: random.Random,
        history: History,
    ) -> None:
        self._name = name
        self._resource = resource
        self._path = f"/api/v1/namespaces/{namespace}/{resource}"
        self._targets = targets
        self._rng = rng
        self._history = history
        self._log: WatchLog | None = None
        self.last = 0
        self.listed = asyncio.Event()

    async def run(self, end: asyncio.Future[int]) -> None:
        """`end` becomes the revision after which there are no more changes."""
        while not (end.done() and self.last >= end.result()):
            with contextlib.suppress(OSError, ValueError, ApiUnreachable):
                await self._follow(end)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _follow(self, end: asyncio.Future[int]) -> None:
        client = ConnectionClient(self._targets, self._rng)
        try:
            if self._log is None:
                operation = Operation(LIST, f"{self._resource}/", time.monotonic())
                status, found = await client.call("GET", self._path)
                operation.end = time.monotonic()
                if status != 200:
                    return
                operation.outcome = OK
                take_list(operation, self._resource, found)
                self._history.operations.append(operation)
                self.last = operation.revision
                self.listed.set()
                self._log = WatchLog(
                    f"{self._name} {self._resource}", self.last, self.last, f"{self._resource}/"
                )
                self._history.watches.append(self._log)
                client.close()
            status, connection = await client.stream(
                f"{self._path}?watch=1&allowWatchBookmarks=true&resourceVersion={self.last}"
            )
            if status != 200:
                return
            await self._read(connection, end)
        finally:
            client.close()

    async def _read(self, connection: ApiConnection, end: asyncio.Future[int]) -> None:
        silent = 0
        while not (end.done() and self.last >= end.result()) and silent < _SILENT_SECONDS:
            try:
                async with asyncio.timeout(1.0):
                    lines = await connection.read_lines()
            except TimeoutError:
                silent += 1
                continue
            silent = 0
            if not lines:
                return
            for line in lines:
                if line and not self._take(orjson.loads(line)):
                    return

    def _take(self, event: Mapping[str, Any]) -> bool:
        """Whether the watch goes on."""
        obj = event["object"]
        if event["type"] == "ERROR":
            if obj.get("code") == 410:
                self._log = None  # the history is gone: list again
            return False
        assert self._log is not None
        revision = revision_of(obj)
        if event["type"] != "BOOKMARK" and content_of(obj):
            key = f"{self._resource}/{obj['metadata']['name']}"
            self._log.changes.append(
                Change(
                    revision,
                    key,
                    event["type"],
                    content_of(obj),
                    obj["metadata"]["uid"],
                    grants_of(obj),
                )
            )
        self.last = self._log.until = max(self.last, revision)
        return True
