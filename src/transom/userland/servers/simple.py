"""Small servers of the documentation's examples, and the generic one for unknown images."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterable

from transom.userland.api import Program, ProgramContext
from transom.userland.cpu import use_cpu
from transom.userland.servers import gomux, grpc, tls
from transom.userland.servers.base import ServerProgram, why_not
from transom.userland.servers.http import (
    Handler,
    ProgramHttpRequest,
    ProgramHttpResponse,
    program_text_response,
)


async def echo_back(first: bytes, connection: socket.socket) -> None:
    """Returns all input; a gRPC client receives a successful health check."""
    if first.startswith(grpc.PREFACE[:4]):
        await grpc.serve_grpc(first, connection, lambda service: grpc.SERVING)
        return
    loop = asyncio.get_running_loop()
    chunk = first
    while chunk:
        await loop.sock_sendall(connection, chunk)
        chunk = await loop.sock_recv(connection, 65536)


def flag(context: ProgramContext, name: str, default: str = "") -> str:
    """`--name value`, `--name=value`, with one dash or two."""
    arguments = list(context.argv[1:])
    for index, argument in enumerate(arguments):
        bare = argument.lstrip("-") if argument.startswith("-") else ""
        if bare == name:
            following = arguments[index + 1] if index + 1 < len(arguments) else ""
            is_value = not following.startswith("-") or following[1:].isdigit()
            return following if following and is_value else "true"
        if bare.startswith(name + "="):
            return bare[len(name) + 1 :]
    return default


def declared_ports(context: ProgramContext) -> Iterable[int]:
    options = context.image.options
    named = options.get("ports") or options.get("port")
    if context.network.ports:
        return dict.fromkeys(
            mapping.container_port for mapping in context.network.ports if mapping.protocol == "TCP"
        )
    return [int(port) for port in named.split(",")] if named else []


class AssumedServer(ServerProgram):
    """Stands for a program of which nothing is known."""


def assumed_server(context: ProgramContext) -> Program:
    return _generic(context, AssumedServer(context))


def generic(context: ProgramContext) -> Program:
    return _generic(context, ServerProgram(context))


def _generic(context: ProgramContext, server: ServerProgram) -> Program:
    """Answers HTTP requests with 200 and echoes everything else, on each declared port."""
    body = context.image.options.get("body")

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        if body is not None:
            return program_text_response(body)
        return program_text_response(f"{context.network.hostname}\n")

    for port in declared_ports(context):
        try:
            server.serve(port, handle, raw=echo_back, certificate=tls.untrusted_certificate)
        except OSError as error:
            server.err(f"listen tcp :{port}: bind: {why_not(error)}")
            server.exit(1)
            break
    return server


def _one_port(
    context: ProgramContext, port: int, server: ServerProgram, handler: Handler, signature: str = ""
) -> Program:
    try:
        server.serve(port, handler, server=signature)
    except OSError as error:
        server.go_log(f"listen tcp :{port}: bind: {why_not(error)}")
        server.exit(1)
    return server


def hello_app(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    port = int(context.env.get("PORT") or 8080)
    version = "2.0.0" if context.image.name.endswith(":2.0") else "1.0.0"
    server.go_log(f"Server listening on port {port}")

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        server.go_log(f"Serving request: {request.path}")
        return program_text_response(
            f"Hello, world!\nVersion: {version}\nHostname: {context.network.hostname}\n"
        )

    return _one_port(context, port, server, gomux.served_file(handle))


def http_echo(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    message = flag(context, "text")
    port = int((flag(context, "listen", ":5678")).rpartition(":")[2])
    if not message:
        server.err("Missing -text option!")
        server.exit(127)
        return server
    server.go_log(f"Server is listening on :{port}")

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        if request.path == "/health":
            return program_text_response('{"status":"ok"}', 200, "application/json; charset=utf-8")
        return program_text_response(message + "\n")

    return _one_port(context, port, server, gomux.served_file(handle))


def echo_server(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    port = int(context.image.options.get("port", "8080"))

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        headers = "".join(f"\t{name}={value}\n" for name, value in sorted(request.headers.items()))
        body = request.body.decode("utf-8", "replace") or "-no body in request-"
        client = request.peer.rpartition(":")[0] or "127.0.0.1"
        return program_text_response(
            f"\n\nHostname: {context.network.hostname}\n\nPod Information:\n\t-no pod information available-\n\n"
            f"Server values:\n\tserver_version=nginx: 1.13.3 - lua: 10008\n\nRequest Information:\n"
            f"\tclient_address={client}\n\tmethod={request.method}\n\treal "
            f"path={request.target}\n\tquery="
            f"{request.target.partition('?')[2]}\n\trequest_version={request.version.removeprefix('HTTP/')}\n"
            f"\trequest_scheme=http\n\trequest_uri=http://{request.headers.get('host', '')}{request.target}\n\n"
            f"Request Headers:\n{headers}\nRequest Body:\n\t{body}\n\n",
            kind="text/plain",
        )

    return _one_port(context, port, server, handle, "echoserver")


def aspnet(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    urls = context.env.get("ASPNETCORE_URLS", "http://+:80")
    port = int(urls.split(";")[0].rpartition(":")[2].strip("/") or 80)

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        page = (
            '<!DOCTYPE html>\n<html lang="en">\n<head><title>Home page - '
            "aspnetapp</title></head>\n<body>\n"
            "<h1>Welcome to .NET</h1>\n<table>\n"
            f"<tr><td>Host name</td><td>{context.network.hostname}</td></tr>\n</table>\n</body>\n</html>\n"
        )
        return program_text_response(page, 200, "text/html; charset=utf-8")

    for line in (
        "info: Microsoft.Hosting.Lifetime[0]",
        f"      Now listening on: http://[::]:{port}",
        "info: Microsoft.Hosting.Lifetime[0]",
        "      Application started. Press Ctrl+C to shut down.",
        "info: Microsoft.Hosting.Lifetime[0]",
        "      Hosting environment: Production",
        "info: Microsoft.Hosting.Lifetime[0]",
        f"      Content root path: {context.cwd}",
    ):
        server.out(line)

    def signalled(name: str) -> bool:
        if name in ("SIGTERM", "SIGINT") or name.startswith("CTRL_"):
            server.out("info: Microsoft.Hosting.Lifetime[0]\n      Application is shutting down...")
        return server.as_handled(name)

    server.on_signal = signalled
    return _one_port(context, port, server, handle, "Kestrel")


def hpa_example(context: ProgramContext) -> Program:
    """A page that takes time to compute, for the autoscaler's walkthrough."""
    server = ServerProgram(context)
    server.on_signal = lambda name: server.as_handled("SIGTERM" if name == "SIGWINCH" else name)

    async def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        await use_cpu(context, 0.05)
        return program_text_response("OK!", kind="text/html; charset=UTF-8")

    return _one_port(context, 80, server, handle, "Apache/2.4.10 (Debian)")


def liveness_server(context: ProgramContext) -> Program:
    """Healthy for ten seconds, then unhealthy."""
    server = ServerProgram(context)
    server.on_signal = server.as_go
    started = context.clock.monotonic()

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        age = context.clock.monotonic() - started
        if request.path == "/healthz":
            return (
                program_text_response("ok")
                if age <= 10
                else program_text_response(f"error: {age:.9g}", 500)
            )
        if request.path == "/started":
            return program_text_response(f"{age:.9g}s")
        if request.path == "/redirect":
            return gomux.mux_redirect(request.query.get("loc", ""))
        return program_text_response("404 page not found\n", 404)

    return _one_port(context, 8080, server, gomux.served_file(handle))


def serve_hostname(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    port = int(flag(context, "port", "9376"))
    tcp = flag(context, "tcp") == "true"

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        server.go_log(f"HTTP request from {request.peer}")
        return program_text_response(context.network.hostname)._replace(
            close=flag(context, "close") == "true"
        )

    async def raw(connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(
                connection, context.network.hostname.encode()
            )
        finally:
            connection.close()

    def signalled(name: str) -> bool:
        if name != "SIGTERM" and not name.startswith("CTRL_"):
            return server.as_go(name)
        server.go_log("Shutting down after receiving signal: terminated.")
        server.go_log("Awaiting pod deletion.")
        server.later(60, server.exit, 0)
        return True

    server.on_signal = signalled
    try:
        if tcp:
            server.listen(port, raw)
        else:
            server.serve(port, gomux.served_file(handle))
    except OSError as error:
        server.go_log(f"listen tcp :{port}: bind: {why_not(error)}")
        server.exit(1)
        return server
    server.go_log(f"Serving on port {port}.")
    return server


def as_json(value: object) -> str:
    """As Go's encoder writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
