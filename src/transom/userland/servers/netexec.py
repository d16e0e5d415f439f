"""agnhost's netexec: executes commands in its container over HTTP and UDP."""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from functools import partial
from typing import TYPE_CHECKING

from transom.http import goerrors
from transom.kit.durations import format_duration, parse_duration
from transom.kit.lazy import lazy_import
from transom.userland import http_client as netclient
from transom.userland.api import Program, ProgramContext
from transom.userland.files import FileView
from transom.userland.servers import gomux, tls
from transom.userland.servers.base import ServerProgram, why_not
from transom.userland.servers.http import (
    ProgramHttpRequest,
    ProgramHttpResponse,
    program_text_response,
)
from transom.userland.servers.simple import as_json, flag
from transom.userland.subprogram import run_captured

if TYPE_CHECKING:
    import email.parser as email_parser
    import email.policy as email_policy
else:
    email_parser = lazy_import("email.parser")
    email_policy = lazy_import("email.policy")

_EPHEMERAL = (32768, 60999)
_DISABLED = -1
_SHUTDOWN_SIGNALS = ("SIGTERM", "CTRL_SHUTDOWN_EVENT", "CTRL_CLOSE_EVENT")


def netexec(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    port = int(flag(context, "http-port", "8080"))
    udp_port = int(flag(context, "udp-port", "8081"))
    override = flag(context, "http-override")
    actions = _Actions(server, port, udp_port)
    delay = int(flag(context, "delay-shutdown", "0"))
    server.on_signal = partial(actions.shut_down, delay) if delay > 0 else server.as_go

    async def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
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
            return tls.untrusted_certificate()

    try:
        server.serve(port, gomux.served_file(handle), certificate=certificate if names[0] else None)
    except OSError as error:
        server.go_log(f"listen tcp :{port}: bind: {why_not(error)}")
        server.exit(1)
        return server
    if udp_port == _DISABLED:
        return server
    try:
        context.network.answer(udp_port, actions.datagram)
    except OSError as error:
        server.go_log(
            f"failed to create listener for UDP address :{udp_port}: listen udp :{udp_port}: "
            f"bind: {why_not(error)}"
        )
        server.exit(1)
        return server
    server.go_log(f"Started UDP server on port {udp_port}")
    return server


class _Actions:
    def __init__(self, server: ServerProgram, port: int, udp_port: int) -> None:
        self.server = server
        self.context = server.context
        self._port = port
        self._udp_port = udp_port
        self._shutting_down = False

    def shut_down(self, seconds: int, signal: str) -> bool:
        if signal not in _SHUTDOWN_SIGNALS:
            return self.server.as_go(signal)
        if not self._shutting_down:
            self._shutting_down = True
            self.server.go_log(f"Sleeping {seconds} seconds before terminating...")
            self.server.later(seconds, self.server.exit, 0)
        return True

    async def answer(self, request: ProgramHttpRequest) -> ProgramHttpResponse:
        query = request.query
        path = request.path
        log = self.server.go_log
        if path in ("/hostname", "/hostName"):
            log(f"GET {path}")
            return program_text_response(self.context.network.hostname)
        if path == "/clientip":
            log("GET /clientip")
            return program_text_response(request.peer)
        if path == "/echo":
            return self._echo(query)
        if path in ("/healthz", "/readyz"):
            log(f"GET {path}")
            return self._health(path)
        if path == "/serverport":
            log("GET /serverport")
            return program_text_response(str(self._port))
        if path == "/header":
            return self._header(request)
        if path == "/exit":
            return self._exit(query)
        if path == "/shutdown":
            log("GET /shutdown")
            self.server.exit(0)
            return ProgramHttpResponse(200)
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
        return program_text_response(f"NOW: {_go_time(moment)}")

    async def datagram(self, payload: bytes, sender: str) -> bytes | None:
        reported = payload.decode("utf-8", "replace").strip().lower()
        bare = f"[{sender}]" if ":" in sender else sender
        client = f"{bare}:{self.context.rng.randint(*_EPHEMERAL)}"
        if reported == "hostname":
            self.server.go_log("Sending udp hostName response")
            return self.context.network.hostname.encode()
        if reported.startswith("echo "):
            self.server.go_log(f"Echoing {reported[5:]} to UDP client {client}")
            return reported[5:].encode()
        if reported == "clientip":
            self.server.go_log(f"Sending clientip back to UDP client {client}")
            return client.encode()
        if reported == "serverport":
            self.server.go_log(f"Sending server port to UDP client {self._udp_port}")
            return str(self._udp_port).encode()
        if reported:
            self.server.go_log(f"Unknown UDP command received from {client}: {reported}")
        return None

    def _health(self, path: str) -> ProgramHttpResponse:
        if path == "/readyz" and self._shutting_down:
            return program_text_response("shutting down", 503)
        if self._udp_port == _DISABLED:  # the UDP server is what makes it ready
            return ProgramHttpResponse(412)
        return ProgramHttpResponse(200) if path == "/healthz" else program_text_response("ok")

    def _header(self, request: ProgramHttpRequest) -> ProgramHttpResponse:
        key = request.query.get("key", "")
        self.server.go_log(f"GET /header?key={key}" if key else "GET /header")
        if key:
            return program_text_response(request.headers.get(key.lower(), ""))
        shown = {name.title(): [value] for name, value in request.headers.items() if name != "host"}
        return program_text_response(_sorted_json(shown))

    def _echo(self, query: dict[str, str]) -> ProgramHttpResponse:
        message, code = query.get("msg", ""), query.get("code", "")
        self.server.go_log(f"GET /echo?msg={message}&code={code}")
        if code and not re.fullmatch(r"-?\d+", code):
            return program_text_response(
                f"argument 'code' must be an integer or empty, got \"{code}\"\n"
            )
        return gomux.written(message, int(code or 200))

    def _exit(self, query: dict[str, str]) -> ProgramHttpResponse:
        wait_text, timeout_text, code_text = (
            query.get("wait", ""),
            query.get("timeout", ""),
            query.get("code", ""),
        )
        self.server.go_log(f"GET /exit?code={code_text}&timeout={timeout_text}&wait={wait_text}")
        try:
            timeout = parse_duration(timeout_text) if timeout_text else 0.0
        except ValueError:
            return program_text_response(
                "argument 'timeout' must be a valid golang duration or empty, got "
                f'"{timeout_text}"\n'
            )
        try:
            wait = parse_duration(wait_text) if wait_text else 0.0
        except ValueError:
            return program_text_response(
                f"argument 'wait' must be a valid golang duration or empty, got \"{wait_text}\"\n"
            )
        if code_text and not code_text.lstrip("-").isdigit():
            return program_text_response(
                f"argument 'code' must be an integer [0-127] or empty, got \"{code_text}\"\n"
            )
        code = int(code_text or 0)
        self.server.go_log(
            f"Will begin shutdown in {format_duration(wait)}, allowing "
            f"{format_duration(timeout)} for connections to close, "
            f"then will exit with {code}"
        )
        self.server.later(wait, self._leave, timeout, code)
        return ProgramHttpResponse(200)

    def _leave(self, timeout: float, code: int) -> None:
        if timeout:
            self.server.go_log("Graceful shutdown completed with: <nil>")
        self.server.exit(code & 0xFF)

    def _redirect(self, method: str, query: dict[str, str]) -> ProgramHttpResponse:
        location, code = query.get("location", ""), query.get("code", "")
        self.server.go_log(f"{method} /redirect?msg={location}&code={code}")
        if code and not code.isdigit():
            return program_text_response(
                f"argument 'code' must be an integer or empty, got \"{code}\"\n"
            )
        return gomux.mux_redirect(location, int(code or 302))

    async def _shell(self, command: str) -> ProgramHttpResponse:
        self.server.go_log(f"GET /shell?cmd={command}")
        result: dict[str, str] = {}
        argv = (
            ("cmd", "/c", command) if self.context.os == "windows" else ("/bin/sh", "-c", command)
        )
        try:
            code, output = await run_captured(self.context, argv)
        except FileNotFoundError:
            code, output = 127, b""
        if output:
            result["output"] = output.decode("utf-8", "replace")
        if code:
            result["error"] = f"exit status {code}"
        self.server.go_log(
            f"Output: map[{' '.join(f'{key}:{value}' for key, value in sorted(result.items()))}]"
        )
        return program_text_response(_sorted_json(result))

    async def _dial(self, query: dict[str, str]) -> ProgramHttpResponse:
        host, port = query.get("host", ""), query.get("port", "")
        wanted, protocol, tries_text = (
            query.get("request", ""),
            query.get("protocol", ""),
            query.get("tries", ""),
        )
        self.server.go_log(
            "GET "
            f"/dial?host={host}&protocol={protocol}&port={port}&request={wanted}&tries={tries_text}"
        )
        if tries_text and not tries_text.lstrip("-").isdigit():
            return program_text_response(
                (
                    f'tries parameter is invalid. strconv.Atoi: parsing "{tries_text}": invalid '
                    "syntax\n"
                ),
                400,
            )
        if not wanted:
            return program_text_response("request parameter not specified. <nil>\n", 400)
        if protocol.lower() not in ("", "http", "udp", "sctp"):
            return program_text_response(f"unsupported protocol. {protocol}\n", 400)
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
                answer = await netclient.with_timeout(
                    self.context,
                    5,
                    netclient.fetch(self.context, f"http://{bare}:{port}/{wanted}", redirects=10),
                )
                last = answer.body.decode("utf-8", "replace")
                responses.append(last)
            except socket.gaierror:
                return program_text_response(
                    f"host and/or port param are invalid. lookup {host}: no such host\n", 400
                )
            except TimeoutError:
                errors.append(
                    f'Get "http://{host}:{port}/{wanted}": context deadline exceeded '
                    "(Client.Timeout "
                    f"exceeded while awaiting headers)"
                )
            except OSError as error:
                texts = goerrors.WINDOWS if self.context.os == "windows" else goerrors.POSIX
                if protocol.lower() in ("", "http"):
                    errors.append(
                        f'Get "http://{host}:{port}/{wanted}": '
                        f"{goerrors.dial_error(f'{host}:{port}', error, texts)}"
                    )
                else:
                    errors.append(str(error.strerror))
        output: dict[str, list[str]] = {}
        if last:
            output["responses"] = responses
        if errors:
            output["errors"] = errors
        return program_text_response(_sorted_json(output))

    async def _dial_udp(self, host: str, port: int, wanted: str) -> str:
        address = (await self.context.network.resolve(host))[0]
        bare = f"[{address}]" if ":" in address else address
        try:
            answer = await self.context.network.ask(address, port, wanted.encode())
        except TimeoutError:
            why = "i/o timeout"
        except ConnectionRefusedError:
            why = "read: connection refused"
        else:
            return answer.decode("utf-8", "replace")
        ends = f"read udp {self.context.network.ips[0]}:{self.context.rng.randint(*_EPHEMERAL)}->{bare}:{port}"
        raise ConnectionError(0, f"reading from udp connection failed. err:'{ends}: {why}'")

    def _upload(self, request: ProgramHttpRequest) -> ProgramHttpResponse:
        self.server.go_log("GET /upload")
        content = _form_file(request)
        if content is None:
            self.server.go_log("Unable to upload file: http: no such file")
            return program_text_response(as_json({"error": "Unable to upload file."}))
        windows = self.context.os == "windows"
        name = f"{'C:' + chr(92) + 'uploads' + chr(92) if windows else '/uploads/'}upload{self.context.rng.randrange(10**9)}"
        files = FileView(self.context, "/")
        try:
            if not files.is_directory(files.parent(name)):
                files.mkdir(files.parent(name))
            files.write(name, content, 0o700)
        except OSError as error:
            self.server.go_log(f"Unable to open file for write: {error}")
            return program_text_response(as_json({"error": "Unable to open file for write"}))
        self.server.go_log(f"Wrote upload to {name}")
        return program_text_response(as_json({"output": name}), 201)


def _sorted_json(value: dict[str, str] | dict[str, list[str]]) -> str:
    shown = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    return shown.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _form_file(request: ProgramHttpRequest) -> bytes | None:
    kind = request.headers.get("content-type", "")
    if not kind.startswith("multipart/form-data"):
        return None
    message = email_parser.BytesParser(policy=email_policy.HTTP).parsebytes(
        f"Content-Type: {kind}\r\n\r\n".encode() + request.body
    )
    for part in message.iter_parts():
        if part.get_param("name", header="content-disposition") == "file":
            payload = part.get_payload(decode=True)
            return payload if isinstance(payload, bytes) else b""
    return None


def _go_time(moment: float) -> str:
    fraction = f"{moment % 1:.9f}"[1:].rstrip("0").rstrip(".")
    return time.strftime(f"%Y-%m-%d %H:%M:%S{fraction} +0000 UTC", time.gmtime(moment))
