"""The Kubernetes API as a program in a pod reaches it: with its service account, over the pod's own
network.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from typing import Any, Final

from transom.kit.clock import rfc3339
from transom.userland.api import ProgramContext
from transom.userland.http_client import Fetched, fetch, stream_lines

Object = dict[str, Any]
_ACCOUNT: Final = {
    "linux": "/var/run/secrets/kubernetes.io/serviceaccount/",
    "windows": "C:\\var\\run\\secrets\\kubernetes.io\\serviceaccount\\",
}
_WATCH_SECONDS: Final = 600
_EVENTS: Final = 1024  # events that are remembered to count repetitions
MERGE: Final = "application/merge-patch+json"


class ApiFailure(Exception):
    """The server's message and status code (0: the server was not reached)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class CsiApi:
    def __init__(self, context: ProgramContext) -> None:
        """Raises ApiFailure outside of a cluster."""
        host, port = (
            context.env.get("KUBERNETES_SERVICE_HOST", ""),
            context.env.get("KUBERNETES_SERVICE_PORT", ""),
        )
        if not host or not port:
            raise ApiFailure(
                0,
                "unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and "
                "KUBERNETES_SERVICE_PORT "
                "must be defined",
            )
        self._context = context
        self._base = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._folder = _ACCOUNT[context.os]
        self._events: dict[tuple[str, ...], tuple[str, int]] = {}  # what it is about -> path, count

    async def get(self, path: str) -> Object:
        return await self._call("GET", path)

    async def list(self, path: str) -> list[Object]:
        return list((await self._call("GET", path)).get("items") or ())

    async def create(self, path: str, body: Object) -> Object:
        return await self._call("POST", path, body)

    async def patch(self, path: str, body: Object) -> Object:
        return await self._call("PATCH", path, body, MERGE)

    async def update(self, path: str, body: Object) -> Object:
        return await self._call("PUT", path, body)

    async def delete(self, path: str) -> None:
        try:
            await self._call("DELETE", path)
        except ApiFailure as problem:
            if problem.code != 404:
                raise

    async def watch(self, path: str, wake: Callable[[], None]) -> None:
        """Calls the function whenever something changes, until the server closes the watch. Raises
        ApiFailure when it cannot watch.
        """
        found = await self._call("GET", f"{path}?limit=1")
        version = found["metadata"].get("resourceVersion", "")
        wake()
        token, ca = self._credentials()
        url = (
            f"{self._base}{path}?watch=1&resourceVersion={version}&timeoutSeconds={_WATCH_SECONDS}"
        )
        try:
            async for _ in stream_lines(
                self._context, url, [("Authorization", f"Bearer {token}")], ca
            ):
                wake()
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError, ValueError) as problem:
            raise ApiFailure(0, str(problem)) from problem

    async def event(
        self, about: Object, kind: str, reason: str, message: str, component: str
    ) -> None:
        """Records an event; one that was recorded before is counted, as client-go does."""
        meta = about["metadata"]
        namespace = meta.get("namespace") or "default"
        now = rfc3339(self._context.clock.time())
        key = (str(meta.get("uid", "")), kind, reason, message)
        if key in self._events:
            path, count = self._events[key]
            try:
                await self.patch(path, {"count": count + 1, "lastTimestamp": now})
                self._events[key] = (path, count + 1)
                return
            except ApiFailure as problem:
                if problem.code != 404:  # else it has expired
                    raise
        name = f"{meta['name']}.{self._context.rng.getrandbits(64):016x}"
        await self._call(
            "POST",
            f"/api/v1/namespaces/{namespace}/events",
            {
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {
                    "kind": about["kind"],
                    "apiVersion": about["apiVersion"],
                    "name": meta["name"],
                    "uid": meta.get("uid", ""),
                    "resourceVersion": meta.get("resourceVersion", ""),
                    **({"namespace": namespace} if meta.get("namespace") else {}),
                },
                "type": kind,
                "reason": reason,
                "message": message,
                "source": {"component": component},
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            },
        )
        if len(self._events) >= _EVENTS:
            self._events.pop(next(iter(self._events)))
        self._events[key] = (f"/api/v1/namespaces/{namespace}/events/{name}", 1)

    def _credentials(self) -> tuple[str, bytes]:
        try:
            files = self._context.files
            return files.read(self._folder + "token").decode().strip(), files.read(
                self._folder + "ca.crt"
            )
        except OSError as problem:
            raise ApiFailure(0, f"open {self._folder}token: no such file or directory") from problem

    async def _call(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> Object:
        token, ca = self._credentials()
        headers = [
            ("Authorization", f"Bearer {token}"),
            ("Accept", "application/json"),
            ("Content-Type", kind),
        ]
        raw = json.dumps(body).encode() if body is not None else b""
        try:
            answer: Fetched = await fetch(
                self._context, self._base + path, method, headers, raw, ca=ca
            )
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError) as problem:
            raise ApiFailure(0, f"{method} {self._base}{path}: {problem}") from problem
        try:
            found = json.loads(answer.body or b"{}")
        except ValueError:  # a path that is not served at all returns plain text
            found = {"message": answer.body.decode(errors="replace").strip()}
        if answer.status >= 400:
            raise ApiFailure(answer.status, str(found.get("message") or answer.reason))
        return dict(found)
