"""agnhost's netexec: a server to be told, over HTTP, what to do in its container."""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from email.parser import BytesParser
from email.policy import HTTP

from transom.http import goerrors
from transom.runtime.sim.program_api import Program, ProgramContext
from transom.runtime.sim.programs import launch, netclient
from transom.runtime.sim.programs.fileview import FileView
from transom.runtime.sim.programs.goflags import duration, show_duration
from transom.runtime.sim.programs.servers import gomux, tls
from transom.runtime.sim.programs.servers.base import Server, why_not
from transom.runtime.sim.programs.servers.http import Request, Response, text
from transom.runtime.sim.programs.servers.simple import as_json, flag

_EPHEMERAL = (32768, 60999)


def netexec(context: ProgramContext) -> Program:
    server = Server(context)
    server.on_signal = server.as_go
    port = int(flag(context, "http-port", "8080"))
    udp_port = int(flag(context, "udp-port", "8081"))
    override = flag(context, "http-override")
    actions = _Actions(server)

    async def handle(request: Request) -> Response:
        if override:
            request = request._replace(method="GET", target=override)
        return await actions.answer(request)

    server.go_log(f"Started HTTP server on port {port}")
    names = flag(context, "tls-cert-file"), flag(context, "tls-private-key-file")

    def certificate() -> ssl.SSLContext:
        files = FileView(context, context.cwd)
        try:
            return tls.context_of(files.read(names[0]), files.read(names[1]))
        except OSError:
            return tls.nobodys()

    try:
        server.serve(port, gomux.served(handle), certificate=certificate if names[0] else None)
    except OSError as error:
        server.go_log(f"listen tcp :{port}: bind: {why_not(error)}")
        server.exit(1)
        return server
    try:
        context.answer(udp_port, actions.datagram)
    except OSError as error:
        server.go_log(f"failed to create listener for UDP address :{udp_port}: listen udp :{udp_port}: bind: {why_not(error)}")
        server.exit(1)
        return server
    server.go_log(f"Started UDP server on port {udp_port}")
    return server


class _Actions:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.context = server.context

    async def answer(self, request: Request) -> Response:
        query = request.query
        path = request.path
        log = self.server.go_log
        if path in ("/hostname", "/hostName"):
            log(f"GET {path}")
            return text(self.context.hostname)
        if path == "/clientip":
            log("GET /clientip")
            return text(request.peer)
        if path == "/echo":
            return self._echo(query)
        if path == "/healthz":
            log("GET /healthz")
            return Response(200)
        if path == "/exit":
            return self._exit(query)
        if path == "/shutdown":
            log("GET /shutdown")
            self.server.exit(0)
            return Response(200)
        if path == "/redirect":
            return self._redirect(request.method, query)
        if path == "/shell":
            return await self._shell(query.get("shellCommand") or query.get("cmd", ""))
        if path == "/dial":
            return await self._dial(query)
        if path == "/upload":
            return self._upload(request)
        log("GET /")
        moment = self.context.clock.time()
        return text(f"NOW: {_go_time(moment)}")

    async def datagram(self, payload: bytes, sender: str) -> bytes | None:
        said = payload.decode("utf-8", "replace").strip().lower()
        bare = f"[{sender}]" if ":" in sender else sender
        client = f"{bare}:{self.context.rng.randint(*_EPHEMERAL)}"
        if said == "hostname":
            self.server.go_log("Sending udp hostName response")
            return self.context.hostname.encode()
        if said.startswith("echo "):
            self.server.go_log(f"Echoing {said[5:]} to UDP client {client}")
            return said[5:].encode()
        if said == "clientip":
            self.server.go_log(f"Sending clientip back to UDP client {client}")
            return client.encode()
        if said:
            self.server.go_log(f"Unknown UDP command received from {client}: {said}")
        return None

    def _echo(self, query: dict[str, str]) -> Response:
        message, code = query.get("msg", ""), query.get("code", "")
        self.server.go_log(f"GET /echo?msg={message}&code={code}")
        if code and not re.fullmatch(r"-?\d+", code):
            return text(f"argument 'code' must be an integer or empty, got \"{code}\"\n")
        return gomux.written(message, int(code or 200))

    def _exit(self, query: dict[str, str]) -> Response:
        wait_text, timeout_text, code_text = query.get("wait", ""), query.get("timeout", ""), query.get("code", "")
        self.server.go_log(f"GET /exit?code={code_text}&timeout={timeout_text}&wait={wait_text}")
        try:
            timeout = duration(timeout_text) if timeout_text else 0.0
        except ValueError:
            return text(f"argument 'timeout' must be a valid golang duration or empty, got \"{timeout_text}\"\n")
        try:
            wait = duration(wait_text) if wait_text else 0.0
        except ValueError:
            return text(f"argument 'wait' must be a valid golang duration or empty, got \"{wait_text}\"\n")
        if code_text and not code_text.lstrip("-").isdigit():
            return text(f"argument 'code' must be an integer [0-127] or empty, got \"{code_text}\"\n")
        code = int(code_text or 0)
        self.server.go_log(
            f"Will begin shutdown in {show_duration(wait)}, allowing {show_duration(timeout)} for connections to close, "
            f"then will exit with {code}"
        )
        self.server.later(wait, self._leave, timeout, code)
        return Response(200)

    def _leave(self, timeout: float, code: int) -> None:
        if timeout:
            self.server.go_log("Graceful shutdown completed with: <nil>")
        self.server.exit(code & 0xFF)

    def _redirect(self, method: str, query: dict[str, str]) -> Response:
        location, code = query.get("location", ""), query.get("code", "")
        self.server.go_log(f"{method} /redirect?msg={location}&code={code}")
        if code and not code.isdigit():
            return text(f"argument 'code' must be an integer or empty, got \"{code}\"\n")
        return gomux.redirect(location, int(code or 302))

    async def _shell(self, command: str) -> Response:
        self.server.go_log(f"GET /shell?cmd={command}")
        result: dict[str, str] = {}
        argv = ("cmd", "/c", command) if self.context.os == "windows" else ("/bin/sh", "-c", command)
        try:
            code, output = await launch.run_captured(self.context, argv)
        except FileNotFoundError:
            code, output = 127, b""
        if output:
            result["output"] = output.decode("utf-8", "replace")
        if code:
            result["error"] = f"exit status {code}"
        self.server.go_log(f"Output: map[{' '.join(f'{key}:{value}' for key, value in sorted(result.items()))}]")
        return text(_sorted_json(result))

    async def _dial(self, query: dict[str, str]) -> Response:
        host, port = query.get("host", ""), query.get("port", "")
        wanted, protocol, tries_text = query.get("request", ""), query.get("protocol", ""), query.get("tries", "")
        self.server.go_log(f"GET /dial?host={host}&protocol={protocol}&port={port}&request={wanted}&tries={tries_text}")
        if tries_text and not tries_text.lstrip("-").isdigit():
            return text(f'tries parameter is invalid. strconv.Atoi: parsing "{tries_text}": invalid syntax\n', 400)
        if not wanted:
            return text("request parameter not specified. <nil>\n", 400)
        if protocol.lower() not in ("", "http", "udp", "sctp"):
            return text(f"unsupported protocol. {protocol}\n", 400)
        errors: list[str] = []
        responses: list[str] = []
        last = ""
        for _ in range(int(tries_text or 1)):
            last = ""
            try:
                if protocol.lower() == "udp":
                    last = await self._dial_udp(host, int(port), wanted)
                    responses.append(last)
                    continue
                if protocol.lower() == "sctp":
                    raise OSError(111, "reading from sctp connection failed. err:'i/o timeout'")
                bare = f"[{host}]" if ":" in host else host
                answer = await netclient.limited(
                    self.context, 5, netclient.fetch(self.context, f"http://{bare}:{port}/{wanted}", redirects=10)
                )
                last = answer.body.decode("utf-8", "replace")
                responses.append(last)
            except socket.gaierror:
                return text(f"host and/or port param are invalid. lookup {host}: no such host\n", 400)
            except TimeoutError:
                errors.append(
                    f'Get "http://{host}:{port}/{wanted}": context deadline exceeded (Client.Timeout '
                    f"exceeded while awaiting headers)"
                )
            except OSError as error:
                said = goerrors.dial(f"{host}:{port}", error) if protocol.lower() in ("", "http") else str(error.strerror)
                errors.append(f'Get "http://{host}:{port}/{wanted}": {said}' if protocol.lower() in ("", "http") else said)
        output: dict[str, list[str]] = {}
        if last:
            output["responses"] = responses
        if errors:
            output["errors"] = errors
        return text(_sorted_json(output))

    async def _dial_udp(self, host: str, port: int, wanted: str) -> str:
        address = (await self.context.resolve(host))[0]
        bare = f"[{address}]" if ":" in address else address
        try:
            answer = await self.context.ask(address, port, wanted.encode())
        except TimeoutError:
            why = "i/o timeout"
        except ConnectionRefusedError:
            why = "read: connection refused"
        else:
            return answer.decode("utf-8", "replace")
        ends = f"read udp {self.context.ips[0]}:{self.context.rng.randint(*_EPHEMERAL)}->{bare}:{port}"
        raise ConnectionError(0, f"reading from udp connection failed. err:'{ends}: {why}'")

    def _upload(self, request: Request) -> Response:
        self.server.go_log("GET /upload")
        content = _form_file(request)
        if content is None:
            self.server.go_log("Unable to upload file: http: no such file")
            return text(as_json({"error": "Unable to upload file."}))
        windows = self.context.os == "windows"
        name = f"{'C:' + chr(92) + 'uploads' + chr(92) if windows else '/uploads/'}upload{self.context.rng.randrange(10**9)}"
        files = FileView(self.context, "/")
        try:
            if not files.is_directory(files.parent(name)):
                files.mkdir(files.parent(name))
            files.write(name, content, 0o700)
        except OSError as error:
            self.server.go_log(f"Unable to open file for write: {error}")
            return text(as_json({"error": "Unable to open file for write"}))
        self.server.go_log(f"Wrote upload to {name}")
        return text(as_json({"output": name}), 201)


def _sorted_json(value: dict[str, str] | dict[str, list[str]]) -> str:
    shown = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    return shown.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _form_file(request: Request) -> bytes | None:
    kind = request.headers.get("content-type", "")
    if not kind.startswith("multipart/form-data"):
        return None
    message = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + request.body)
    for part in message.iter_parts():
        if part.get_param("name", header="content-disposition") == "file":
            payload = part.get_payload(decode=True)
            return payload if isinstance(payload, bytes) else b""
    return None


def _go_time(moment: float) -> str:
    fraction = f"{moment % 1:.9f}"[1:].rstrip("0").rstrip(".")
    return time.strftime(f"%Y-%m-%d %H:%M:%S{fraction} +0000 UTC", time.gmtime(moment))
