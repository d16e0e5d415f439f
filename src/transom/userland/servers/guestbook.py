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


def guestbook(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    port, backend = (
        int(flag(context, "http-port", "80")),
        int(flag(context, "backend-port", "6379")),
    )
    primary = flag(context, "replicaof")
    store: dict[str, object] = {}
    replicas: list[str] = []

    async def call(host: str, request: str) -> str:
        url = f"http://{host}:{backend}/{request}"
        answer = await netclient.with_timeout(context, 5, netclient.fetch(context, url))
        return answer.body.decode("utf-8", "replace")

    async def register() -> None:
        end = context.clock.monotonic() + 15
        own = context.network.ips[0] if context.network.ips else "127.0.0.1"
        while context.clock.monotonic() < end:
            server.go_log(f"Registering to primary: {primary}:{backend}/register?host={own}")
            try:
                await call(primary, f"register?host={own}")
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

    async def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        query = request.query
        key, value = query.get("key", ""), query.get("value", "")
        if request.path == "/register":
            host = query.get("host", "")
            server.go_log(f"GET /register?host={host}")
            replicas.append(host)
            server.go_log(f"Node '{host}' registered.")
            return program_text_response(as_json({"data": store}))
        if request.path == "/get":
            server.go_log(f"GET /get?key={key}")
            return program_text_response(as_json({"data": store.get(key, "") if key else store}))
        if request.path == "/set":
            server.go_log(f"GET /set?key={key}&value={value}")
            if not key:
                return program_text_response("cannot set with empty key.\n", 400)
            store[key] = value
            for replica in replicas:
                try:
                    await call(replica, f"set?key={key}&value={value}")
                except OSError as error:
                    return program_text_response(
                        f"encountered error while propagating to replica '{replica}': {error}\n",
                        417,
                    )
            return program_text_response(as_json({"message": "Updated"}))
        if request.path == "/guestbook":
            return await forward(query.get("cmd", "").lower(), key, value)
        return program_text_response("404 page not found\n", 404)

    async def forward(command: str, key: str, value: str) -> ProgramHttpResponse:
        server.go_log(f"GET /guestbook?cmd={command}&key={key}&value={value}")
        if command not in ("get", "set"):
            return program_text_response(f"unsupported cmd: '{command}'\n", 400)
        if command == "set" and not key:
            return program_text_response("cannot set with empty key.\n", 400)
        host = "agnhost-primary" if command == "set" else "agnhost-replica"
        try:
            return program_text_response(await call(host, f"{command}?key={key}&value={value}"))
        except socket.gaierror as error:
            return program_text_response(f"host and/or port param are invalid. {error}\n", 400)
        except OSError as error:
            return program_text_response(f"encountered error: {error}\n", 417)

    try:
        server.serve(port, handle)
    except OSError as error:
        server.go_log(f"listen tcp :{port}: bind: {why_not(error)}")
        server.exit(1)
        return server
    if primary:
        server.spawn(register())
    return server
