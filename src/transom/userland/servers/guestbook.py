"""agnhost's guestbook: a replicated store, as in the guestbook example."""

from __future__ import annotations

import socket

from transom.userland import http_client as netclient
from transom.userland.api import Program, ProgramContext
from transom.userland.servers.base import ServerProgram, why_not
from transom.userland.servers.http import (
    ProgramHttpRequest,
    ProgramHttpResponse,
    program_text_response,
)
from transom.userland.servers.simple import as_json, flag


class _Guestbook:
    """The store of one node, and the requests that the nodes send each other."""

    def __init__(self, server: ServerProgram, backend: int, primary: str) -> None:
        self._server = server
        self._backend = backend
        self._primary = primary
        self._store: dict[str, object] = {}
        self._replicas: list[str] = []

    async def register(self) -> None:
        """Registers with the primary, for up to 15 seconds."""
        server, context, primary = self._server, self._server.context, self._primary
        end = context.clock.monotonic() + 15
        own = context.network.ips[0] if context.network.ips else "127.0.0.1"
        while context.clock.monotonic() < end:
            server.go_log(f"Registering to primary: {primary}:{self._backend}/register?host={own}")
            try:
                await self._call(primary, f"register?host={own}")
            except OSError as error:
                server.go_log(
                    f"encountered error while registering to primary: {error}. Retrying in 1s."
                )
                await context.clock.sleep(1)
                continue
            server.go_log(f"Registered to node: {primary}")
            return
        server.go_log("Timed out while registering to primary.")
        server.exit(1)

    async def handle(self, request: ProgramHttpRequest) -> ProgramHttpResponse:
        server, query = self._server, request.query
        key, value = query.get("key", ""), query.get("value", "")
        if request.path == "/register":
            host = query.get("host", "")
            server.go_log(f"GET /register?host={host}")
            self._replicas.append(host)
            server.go_log(f"Node '{host}' registered.")
            return program_text_response(as_json({"data": self._store}))
        if request.path == "/get":
            server.go_log(f"GET /get?key={key}")
            found = self._store.get(key, "") if key else self._store
            return program_text_response(as_json({"data": found}))
        if request.path == "/set":
            return await self._set(key, value)
        if request.path == "/guestbook":
            return await self._forward(query.get("cmd", "").lower(), key, value)
        return program_text_response("404 page not found\n", 404)

    async def _set(self, key: str, value: str) -> ProgramHttpResponse:
        self._server.go_log(f"GET /set?key={key}&value={value}")
        if not key:
            return program_text_response("cannot set with empty key.\n", 400)
        self._store[key] = value
        for replica in self._replicas:
            try:
                await self._call(replica, f"set?key={key}&value={value}")
            except OSError as error:
                return program_text_response(
                    f"encountered error while propagating to replica '{replica}': {error}\n",
                    417,
                )
        return program_text_response(as_json({"message": "Updated"}))

    async def _forward(self, command: str, key: str, value: str) -> ProgramHttpResponse:
        self._server.go_log(f"GET /guestbook?cmd={command}&key={key}&value={value}")
        if command not in ("get", "set"):
            return program_text_response(f"unsupported cmd: '{command}'\n", 400)
        if command == "set" and not key:
            return program_text_response("cannot set with empty key.\n", 400)
        host = "agnhost-primary" if command == "set" else "agnhost-replica"
        try:
            return program_text_response(
                await self._call(host, f"{command}?key={key}&value={value}")
            )
        except socket.gaierror as error:
            return program_text_response(f"host and/or port param are invalid. {error}\n", 400)
        except OSError as error:
            return program_text_response(f"encountered error: {error}\n", 417)

    async def _call(self, host: str, request: str) -> str:
        context = self._server.context
        url = f"http://{host}:{self._backend}/{request}"
        answer = await netclient.with_timeout(context, 5, netclient.fetch(context, url))
        return answer.body.decode("utf-8", "replace")


def guestbook(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    port = int(flag(context, "http-port", "80"))
    primary = flag(context, "replicaof")
    store = _Guestbook(server, int(flag(context, "backend-port", "6379")), primary)
    try:
        server.serve(port, store.handle)
    except OSError as error:
        server.go_log(f"listen tcp :{port}: bind: {why_not(error)}")
        server.exit(1)
        return server
    if primary:
        server.spawn(store.register())
    return server
