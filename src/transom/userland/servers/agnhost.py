"""agnhost, the image of Kubernetes' end-to-end tests: one program with many sub-commands. Facts as
of version 2.25.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from functools import partial

from transom.kit.durations import format_duration, parse_duration
from transom.userland import http_client as netclient
from transom.userland.api import Program, ProgramContext
from transom.userland.files import FileView
from transom.userland.servers import agnhost_files, gomux, grpc, netexec, simple, tls, web
from transom.userland.servers.agnhost_conversion import conversion_webhook
from transom.userland.servers.agnhost_nettest import nettest
from transom.userland.servers.agnhost_webhook import webhook
from transom.userland.servers.base import ServerProgram, why_not
from transom.userland.servers.guestbook import guestbook
from transom.userland.servers.http import (
    ProgramHttpRequest,
    ProgramHttpResponse,
    program_text_response,
)
from transom.userland.servers.simple import flag

Sub = Callable[[ProgramContext], Program]


def _pause(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.out("Paused")

    def signalled(name: str) -> bool:
        if name in ("SIGINT", "CTRL_C_EVENT"):
            server.exit(1)
        elif name == "SIGTERM" or name.startswith("CTRL_"):
            server.exit(2)
        else:
            return server.as_go(name)
        return True

    server.on_signal = signalled
    return server


def _test_webserver(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    extra = (
        ("Cache-Control", "private"),
        ("Access-Control-Allow-Origin", "*"),
        ("Access-Control-Allow-Credentials", "true"),
        ("Access-Control-Allow-Methods", "GET, POST, OPTIONS"),
        (
            "Access-Control-Allow-Headers",
            "DNT,X-Mx-ReqToken,Keep-Alive,User-Agent,X-Requested-With,Cache-Control,Content-Type",
        ),
    )
    root = "C:\\" if context.os == "windows" else "/"
    files = FileView(context, root)

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        found = web.find_page(context, root, request.path, ("index.html",))
        if found == 403 and request.path.endswith("/"):
            names = files.listdir(request.path)
            shown = (
                name + ("/" if files.is_directory(files.join(request.path, name)) else "")
                for name in names
            )
            listing = "".join(f'<a href="{name}">{name}</a>\n' for name in shown)
            response = program_text_response(
                f"<pre>\n{listing}</pre>\n", kind="text/html; charset=utf-8"
            )
        elif found == 301:
            response = ProgramHttpResponse(
                301, b"", (("Location", request.path.rpartition("/")[2] + "/"),)
            )
        elif isinstance(found, int):
            response = program_text_response("404 page not found\n", 404)
        else:
            response = web.file_response(context, *found)
        return response._replace(headers=(*response.headers, *extra))

    return _serve(server, int(flag(context, "port", "80")), handle)


def _serve(
    server: ServerProgram, port: int, handler: Callable[[ProgramHttpRequest], ProgramHttpResponse]
) -> Program:
    try:
        server.serve(port, gomux.served_file(handler))
    except OSError as error:
        server.go_log(f"listen tcp :{port}: bind: {why_not(error)}")
        server.exit(1)
    return server


def _certificate(context: ProgramContext, certificate: str, key: str) -> ssl.SSLContext:
    """A certificate from the files that two environment variables name; otherwise the image's own."""
    files = FileView(context, context.cwd)
    names = context.env.get(certificate, ""), context.env.get(key, "")
    try:
        return (
            tls.context_of(files.read(names[0]), files.read(names[1]))
            if all(names)
            else tls.untrusted_certificate()
        )
    except OSError:
        return tls.untrusted_certificate()


def _porter(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    as_json = flag(context, "json-response") == "true"
    for name, value in context.env.items():
        for prefix in ("SERVE_PORT_", "SERVE_TCP_PORT_", "SERVE_TLS_PORT_"):
            port = name.removeprefix(prefix)
            if port == name or not port.isdigit():
                continue

            def handle(request: ProgramHttpRequest, value: str = value) -> ProgramHttpResponse:
                if as_json:
                    return program_text_response(
                        simple.as_json({"Method": request.method, "Body": value}),
                        kind="application/json",
                    )
                return gomux.written(value)

            certificate = (
                partial(_certificate, context, "CERT_FILE", "KEY_FILE")
                if prefix == "SERVE_TLS_PORT_"
                else None
            )
            try:
                server.serve(int(port), gomux.served_file(handle), certificate=certificate)
            except OSError as error:
                server.go_log(
                    f'server on port "{port}" failed: listen tcp 0.0.0.0:{port}: bind: '
                    f"{why_not(error)}"
                )
    return server


def _entrypoint_tester(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.out(f"[{' '.join(context.argv)}]")
    server.exit(0)
    return server


def _logs_generator(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    total = int(flag(context, "log-lines-total", flag(context, "t", "0")))
    try:
        whole = parse_duration(flag(context, "run-duration", flag(context, "d", "0s")))
    except ValueError:
        whole = 0.0
    if total <= 0 or whole <= 0:
        what = (
            f"Invalid total number of lines: {total}"
            if total <= 0
            else f"Invalid duration: {whole:g}s"
        )
        server.err(_klog(context, "F", "logs_generator.go:67", what))
        server.exit(255)
        return server
    rng: random.Random = context.rng
    letters = "bcdfghjklmnpqrstvwxz2456789"

    def line(number: int) -> None:
        if server.ended:
            return
        if number == total:
            server.exit(0)
            return
        namespace = rng.choice(("kube-system", "default", "ns"))
        pod = "".join(rng.choices(letters, k=rng.randrange(3, 5)))
        method = rng.choice(("GET", "POST", "PUT"))
        message = (
            f"{number} {method} /api/v1/namespaces/{namespace}/pods/{pod} {rng.randrange(200, 600)}"
        )
        server.err(_klog(context, "I", "logs_generator.go:76", message))
        context.clock.call_later(whole / total, line, number + 1)

    line(0)
    return server


def _klog(context: ProgramContext, severity: str, place: str, message: str) -> str:
    now = context.clock.time()
    moment = time.strftime("%m%d %H:%M:%S", time.gmtime(now))
    return f"{severity}{moment}.{int(now % 1 * 1_000_000):06d} {context.pid:>7} {place}] {message}"


def _connect(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    timeout_text = flag(context, "timeout", "0s")
    protocol = flag(context, "protocol") or "tcp"
    data = flag(context, "udp-data", "hostname")
    values = (timeout_text, protocol, data)
    target = next(
        (one for one in context.argv[2:] if not one.startswith("-") and one not in values), ""
    )
    host, colon, port = target.rpartition(":")
    name = host.strip("[]")

    async def over_tcp() -> None:
        connection = await netclient.with_timeout(
            context, parse_duration(timeout_text), context.network.connect(name, int(port))
        )
        connection.close()

    async def over_udp() -> None:
        address = (await context.network.resolve(name))[0]
        question = context.network.ask(address, int(port), f"{data}\n".encode())
        await netclient.with_timeout(context, parse_duration(timeout_text), question)

    async def run() -> None:
        if protocol not in ("tcp", "udp"):
            server.err(f"Unsupported protocol\n{protocol}")
        elif not colon or not port.isdigit():
            server.err(f"UNKNOWN: address {target}: missing port in address")
        else:
            await attempt(over_udp if protocol == "udp" else over_tcp)
            return
        server.exit(1)

    async def attempt(exchange: Callable[[], Awaitable[None]]) -> None:
        udp, where = protocol == "udp", f"{protocol} {target}: "
        try:
            await exchange()
            server.exit(0)
            return
        except socket.gaierror:
            server.err(f"DNS: lookup {name}: no such host")
        except TimeoutError:
            server.err(f"TIMEOUT: read {where}i/o timeout" if udp else "TIMEOUT")
        except ConnectionRefusedError:
            server.err(f"REFUSED: read {where}read: connection refused" if udp else "REFUSED")
        except OSError as error:
            kind, call = ("UNKNOWN", "write") if udp else ("OTHER", "dial")
            step = "write" if udp else "connect"
            server.err(f"{kind}: {call} {where}{step}: {(error.strerror or '').lower()}")
        server.exit(1)

    server.spawn(run())
    return server


def _dns_list(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    which = context.argv[1]
    if which == "etc-hosts":
        path = (
            "C:\\Windows\\System32\\drivers\\etc\\hosts"
            if context.os == "windows"
            else "/etc/hosts"
        )
        try:
            server.out(FileView(context, "/").text(path))
        except OSError as error:
            server.err(f"panic: open {path}: {(error.strerror or '').lower()}")
            server.exit(2)
            return server
    else:
        searches = (
            context.network.dns.searches[:1]
            if context.os == "windows"
            else context.network.dns.searches
        )
        values = searches if which == "dns-suffix" else context.network.dns.servers
        server.out(",".join(values))
    server.exit(0)
    return server


def _port_forward_tester(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    env = context.env
    numbers: dict[str, int] = {}
    accepted = False

    def number(name: str) -> int | None:
        try:
            return int(env.get(name, ""))
        except ValueError:
            value = env.get(name, "")
            server.out(
                f'Error parsing {name} "{value}": strconv.Atoi: parsing "{value}": invalid syntax'
            )
            server.exit(1)
            return None

    async def serve(connection: socket.socket) -> None:
        nonlocal accepted
        if accepted:
            connection.close()
            return
        accepted = True
        loop = asyncio.get_running_loop()
        server.out("Accepted client connection")
        try:
            expected = env.get("EXPECTED_CLIENT_DATA", "")
            if expected:
                data = await loop.sock_recv(connection, len(expected))
                if len(data) != len(expected):
                    server.out(
                        f"Expected to read {len(expected)} bytes from client, but got "
                        f"{len(data)} instead. err=EOF"
                    )
                    server.exit(2)
                    return
                if data.decode("utf-8", "replace") != expected:
                    server.out(
                        f'Expect to read "{expected}", but got '
                        f'"{data.decode("utf-8", "replace")}". err=<nil>'
                    )
                    server.exit(3)
                    return
                server.out("Received expected client data")
            for name in ("CHUNKS", "CHUNK_SIZE", "CHUNK_INTERVAL"):
                value = number(name)
                if value is None:
                    return
                numbers[name] = value
            for index in range(numbers["CHUNKS"]):
                await loop.sock_sendall(connection, b"x" * numbers["CHUNK_SIZE"])
                if index + 1 < numbers["CHUNKS"]:
                    await context.clock.sleep(numbers["CHUNK_INTERVAL"] / 1000)
            server.out("Shutting down connection")
            connection.shutdown(socket.SHUT_WR)
            await context.clock.sleep(0.5)
            server.out("Done")
            server.exit(0)
        except ConnectionError as error:
            server.out(
                f"Expected to write {numbers.get('CHUNK_SIZE', 0)} bytes from client, but "
                f"wrote 0 instead. err={error}"
            )
            server.exit(4)
        finally:
            connection.close()

    port = number("BIND_PORT") if env.get("BIND_PORT") else 0
    if port is not None:
        address = env.get("BIND_ADDRESS") or "localhost"
        try:
            server.listen(
                port,
                serve,
                "127.0.0.1" if address == "localhost" else "" if address == "0.0.0.0" else address,
            )
        except OSError as error:
            server.out(f"Error listening: listen tcp {address}:{port}: bind: {why_not(error)}")
            server.exit(1)
    return server


def _in_cluster_client(context: ProgramContext) -> Program:
    """Repeatedly asks the API server for its health with the pod's token."""
    server = ServerProgram(context)
    server.on_signal = server.as_go
    directory = "/var/run/secrets/kubernetes.io/serviceaccount"
    period = float(flag(context, "poll-interval", "30"))
    host, port = (
        context.env.get("KUBERNETES_SERVICE_HOST", ""),
        context.env.get("KUBERNETES_SERVICE_PORT", "443"),
    )

    async def run() -> None:
        files = FileView(context, "/")
        while True:
            try:
                token = files.text(f"{directory}/token")
                message = f"calling /healthz\nauthz_header={token[:12]}"
                server.out(message)
                await netclient.fetch(
                    context,
                    f"https://{host}:{port}/healthz",
                    headers=[("Authorization", f"Bearer {token}")],
                    ca=files.read(f"{directory}/ca.crt"),
                )
            except OSError as error:
                server.err(f"status=failed\nerror checking /healthz: {error}")
            await context.clock.sleep(period)

    server.spawn(run())
    return server


def _grpc_health(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    started = context.clock.monotonic()
    name, delay = flag(context, "service"), float(flag(context, "delay-unhealthy-sec", "-1"))
    port, http_port = int(flag(context, "port", "5000")), int(flag(context, "http-port", "8080"))
    forced: bool | None = None

    def check(service: str) -> int | None:
        server.go_log("Serving the Check request for health check")
        if service != name:
            return None
        late = delay >= 0 and context.clock.monotonic() - started >= delay
        return grpc.NOT_SERVING if forced or late else grpc.SERVING

    async def accept(connection: socket.socket) -> None:
        try:
            await grpc.serve_grpc(b"", connection, check)
        except ConnectionError:
            return
        finally:
            connection.close()

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        nonlocal forced
        if request.path not in ("/make-serving", "/make-not-serving"):
            return program_text_response("404 page not found\n", 404)
        forced = request.path == "/make-not-serving"
        server.go_log("Mark as unhealthy" if forced else "Mark as healthy")
        return program_text_response(format_duration(context.clock.monotonic() - started))

    server.go_log(f"Http server starting to listen on :{http_port}")
    server.go_log(f"gRPC server starting to listen on :{port}")
    try:
        server.listen(port, accept)
    except OSError as error:
        server.go_log(
            f"Error while starting the listening service listen tcp :{port}: bind: {why_not(error)}"
        )
        server.exit(1)
        return server
    return _serve(server, http_port, handle)


def _fake_git_server(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    return _serve(server, 8000, lambda request: program_text_response("I am a fake git server"))


def _no_snat(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        if request.path == "/whoami":
            return program_text_response(request.peer.rpartition(":")[0])
        return program_text_response("ok")

    return _serve(server, int(flag(context, "port", "8080")), handle)


def _resource_consumer_controller(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    name, namespace = (
        flag(context, "consumer-service-name"),
        flag(context, "consumer-service-namespace", "default"),
    )
    port = int(flag(context, "consumer-port", "8080"))

    async def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        if request.method != "POST":
            return program_text_response("not a http.Request.Method == POST", 400)
        url = f"http://{name}.{namespace}.svc.cluster.local:{port}{request.target}"
        try:
            await netclient.fetch(
                context,
                url,
                "POST",
                (("Content-Type", "application/x-www-form-urlencoded"),),
                request.body,
            )
        except OSError as error:
            return program_text_response(f"Failed to connect to consumer: {error}", 400)
        return program_text_response("RC manager: sent 1 requests\n")

    try:
        server.serve(int(flag(context, "port", "8080")), handle)
    except OSError as error:
        server.go_log(why_not(error))
        server.exit(1)
    return server


def _audit_proxy(context: ProgramContext) -> Program:
    """Prints the audit events that an API server sends."""
    server = ServerProgram(context)
    server.on_signal = server.as_go

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        try:
            events = json.loads(request.body)["items"]
        except (ValueError, KeyError, TypeError):
            bits = " ".join(f"{byte:b}" for byte in request.body)
            server.go_log(f"failed decoding buf: [{bits}], apiVersion: audit.k8s.io/v1")
            return ProgramHttpResponse(500)
        for event in events:
            server.out(simple.as_json({"kind": "Event", "apiVersion": "audit.k8s.io/v1", **event}))
        return ProgramHttpResponse(200)

    return _serve(server, 8080, handle)


SUB_COMMANDS: dict[str, Sub] = {
    "audit-proxy": _audit_proxy,
    "connect": _connect,
    "crd-conversion-webhook": conversion_webhook,
    "dns-server-list": _dns_list,
    "dns-suffix": _dns_list,
    "entrypoint-tester": _entrypoint_tester,
    "etc-hosts": _dns_list,
    "fake-gitserver": _fake_git_server,
    "grpc-health-checking": _grpc_health,
    "guestbook": guestbook,
    "inclusterclient": _in_cluster_client,
    "liveness": simple.liveness_server,
    "logs-generator": _logs_generator,
    "mounttest": agnhost_files.mounttest,
    "netexec": netexec.netexec,
    "nettest": nettest,
    "no-snat-test": _no_snat,
    "no-snat-test-proxy": _no_snat,
    "pause": _pause,
    "port-forward-tester": _port_forward_tester,
    "porter": _porter,
    "resource-consumer-controller": _resource_consumer_controller,
    "serve-hostname": simple.serve_hostname,
    "test-webserver": _test_webserver,
    "webhook": webhook,
}


def agnhost(context: ProgramContext) -> Program:
    arguments = context.argv[1:]
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    sub = SUB_COMMANDS.get(name)
    if sub is not None:
        return sub(context)
    server = ServerProgram(context)
    if name == "net":  # it configures the kernel's connection tracking, which does not exist here
        return simple.generic(context)
    if "--version" in arguments:
        server.out("app version 2.25")
    elif name:
        server.err(f'Error: unknown command "{name}" for "app"\nRun \'app --help\' for usage.')
    else:
        listed = "\n".join(f"  {key}" for key in sorted(SUB_COMMANDS))
        server.out(f"Usage:\n  app [command]\n\nAvailable Commands:\n{listed}\n")
    server.exit(0)
    return server
