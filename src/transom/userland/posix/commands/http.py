"""wget and curl."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from typing import Final

from transom.machines.windows.certificate_stores import stored_certificates
from transom.userland import http_client as netclient
from transom.userland.files import error_text
from transom.userland.posix.commands.network import why
from transom.userland.posix.commands.options import ParsedOptions, parse_options
from transom.userland.process import Command, Process


async def wget(process: Process) -> int:
    options = parse_options(
        process,
        "OTtUPYe",
        long_with_value=(
            "header",
            "post-data",
            "post-file",
            "output-document",
            "timeout",
            "tries",
            "user-agent",
        ),
        long_names={
            "output-document": "O",
            "timeout": "T",
            "tries": "t",
            "quiet": "q",
            "spider": "spider",
            "user-agent": "U",
        },
    )
    if not options.operands:
        process.complain(
            "wget: missing URL"
            if process.gnu
            else "BusyBox v1.31.1 () multi-call binary.\n\nUsage: wget [OPTIONS] URL..."
        )
        return 1
    url = options.operands[0]
    try:
        address = netclient.split_url(url)
    except ValueError:
        return process.fail(f"not an http or ftp url: {url}")
    quiet = "q" in options
    context = process.context
    limit = float(options.value("T", "0")) or None
    headers = [_split_header(header) for header in options.values.get("header", [])]
    data = options.value("post-data").encode()
    try:
        addresses = await context.network.resolve(address.host)
    except socket.gaierror:
        if process.gnu:
            process.complain(f"wget: unable to resolve host address '{address.host}'")
            return 4
        return process.fail(f"bad address '{address.host}'")
    shown = f"{addresses[0]}:{address.port}"
    if not quiet and not process.gnu:
        process.complain(
            f"Connecting to {address.host}{'' if address.port == 80 else f':{address.port}'} "
            f"({shown})"
        )
    try:
        answer = await netclient.with_timeout(
            context,
            limit,
            netclient.fetch(
                context,
                url,
                "POST" if data else "HEAD" if "spider" in options and process.gnu else "GET",
                headers,
                data,
                agent=options.value("U", "Wget"),
                redirects=10,
                insecure=True,
            ),
        )
    except (OSError, asyncio.IncompleteReadError) as error:
        return _wget_failed(process, addresses[0], error)
    if "S" in options:
        process.complain(f"  {answer.version} {answer.status} {answer.reason}")
        for name, value in answer.headers:
            process.complain(f"  {name}: {value}")
    if answer.status >= 400:
        return process.fail(
            f"server returned error: HTTP/1.1 {answer.status} {answer.reason}",
            8 if process.gnu else 1,
        )
    if "spider" in options:
        if not quiet and not process.gnu:
            process.complain("remote file exists")
        return 0
    name = options.value("O") or address.target.split("?")[0].rpartition("/")[2] or "index.html"
    return _save(process, name, answer.body, quiet)


def _wget_failed(
    process: Process, address: str, error: OSError | asyncio.IncompleteReadError
) -> int:
    """Prints why there is no answer; returns the exit code."""
    code = 4 if process.gnu else 1
    if isinstance(error, TimeoutError):
        return process.fail("download timed out")
    if isinstance(error, ConnectionRefusedError):
        return process.fail(f"can't connect to remote host ({address}): Connection refused", code)
    if isinstance(error, ConnectionError | asyncio.IncompleteReadError):
        return process.fail("No data received." if process.gnu else "error getting response", code)
    if isinstance(error, ssl.SSLError):
        return process.fail(f"error getting response: {error.reason}", 5 if process.gnu else 1)
    return process.fail(f"can't connect to remote host ({address}): {why(error)}", code)


def _save(process: Process, name: str, body: bytes, quiet: bool) -> int:
    if name == "-":
        process.stdout.write(body)
        if not quiet:
            process.complain(
                f"writing to stdout\n{'-':<20} 100% |********************************| "
                f"{len(body):5d}  0:00:00 ETA\nwritten to stdout"
            )
        return 0
    if not quiet:
        process.complain(f"saving to '{name}'")
    try:
        process.open_output(name).write(body)
    except OSError as error:
        return process.fail(f"can't open '{name}': {error_text(error)}")
    if not quiet:
        process.complain(
            f"{name:<20} 100% |********************************| {len(body):5d}  "
            f"0:00:00 ETA\n'{name}' saved"
        )
    return 0


def _split_header(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":")
    return name.strip(), value.strip()


async def curl(process: Process) -> int:
    options = parse_options(
        process,
        "oXHdmuATFxeEcbwrKYyzCQt",
        long_with_value=(
            "connect-timeout",
            "retry",
            "retry-delay",
            "cacert",
            "cert",
            "key",
            "resolve",
            "data-binary",
            "data-raw",
            "data-urlencode",
            "max-redirs",
            "proxy",
            "interface",
            "noproxy",
            "retry-max-time",
        ),
        long_names={
            "output": "o",
            "request": "X",
            "header": "H",
            "data": "d",
            "max-time": "m",
            "user": "u",
            "user-agent": "A",
            "upload-file": "T",
            "form": "F",
            "silent": "s",
            "show-error": "S",
            "fail": "f",
            "location": "L",
            "include": "i",
            "head": "I",
            "insecure": "k",
            "verbose": "v",
            "write-out": "w",
            "get": "G",
            "remote-name": "O",
        },
    )
    if not options.operands:
        process.complain("curl: try 'curl --help' or 'curl --manual' for more information")
        return 2
    code = 0
    for url in options.operands:
        code = await _Curl(process, options, url).run()
    return code


_UNTRUSTED: Final = "SSL certificate problem: unable to get local issuer certificate"
_UNTRUSTED_ON_WINDOWS: Final = (
    "schannel: SEC_E_UNTRUSTED_ROOT (0x80090325) - The certificate chain was issued by an "
    "authority that is not trusted."
)


def _system_roots(process: Process) -> bytes | None:
    """What curl of Windows trusts: the store of the system. On Linux it has a bundle of its own."""
    if not process.windows:
        return None
    registry = process.context.windows.system.registry
    roots = stored_certificates(registry, "LocalMachine", "Root")
    return b"".join(ssl.DER_cert_to_PEM_cert(one.der).encode() for one in roots) or None


class _Curl:
    def __init__(self, process: Process, options: ParsedOptions, url: str) -> None:
        self.process = process
        self.options = options
        self.url = url
        self.started = process.context.clock.monotonic()

    def fail(self, code: int, message: str, answer: netclient.Fetched | None = None) -> int:
        if "s" not in self.options or "S" in self.options:
            self.process.complain(f"curl: ({code}) {message}")
        self._write_out(answer)
        return code

    async def run(self) -> int:
        options, process = self.options, self.process
        context = process.context
        data = self._data()
        method = options.value("X") or (
            "HEAD"
            if "I" in options
            else "PUT"
            if options.value("T")
            else "POST"
            if data is not None and "G" not in options
            else "GET"
        )
        url = self.url
        if data is not None and "G" in options:
            url += ("&" if "?" in url else "?") + data.decode("utf-8", "replace")
            data = None
        try:
            address = netclient.split_url(url)
        except ValueError as error:
            return self.fail(1, f'Protocol "{error}" not supported or disabled in libcurl')
        if not address.host:
            return self.fail(3, "URL using bad/illegal format or missing URL")
        headers = [_split_header(header) for header in options.values.get("H", [])]
        if data is not None and not any(name.lower() == "content-type" for name, _ in headers):
            headers.append(("Content-Type", "application/x-www-form-urlencoded"))
        limit = float(options.value("m") or options.value("connect-timeout") or 0) or None
        try:
            ca = (
                process.files.read(options.value("cacert"))
                if options.value("cacert")
                else _system_roots(process)
            )
        except OSError:
            return self.fail(
                77,
                (
                    "error setting certificate verify locations:\n  CAfile: "
                    f"{options.value('cacert')}\n  CApath: none"
                ),
            )
        if "u" in options:
            headers.append(
                ("Authorization", "Basic " + base64.b64encode(options.value("u").encode()).decode())
            )
        try:
            answer = await netclient.with_timeout(
                context,
                limit,
                netclient.fetch(
                    context,
                    url,
                    method,
                    headers,
                    data or b"",
                    agent=options.value("A", "curl/7.67.0"),
                    redirects=50 if "L" in options else 0,
                    ca=ca,
                    insecure="k" in options,
                ),
            )
        except socket.gaierror:
            return self.fail(6, f"Could not resolve host: {address.host}")
        except TimeoutError:
            waited = int((context.clock.monotonic() - self.started) * 1000)
            if "m" in options:
                return self.fail(
                    28, f"Operation timed out after {waited} milliseconds with 0 bytes received"
                )
            return self.fail(28, f"Connection timed out after {waited} milliseconds")
        except ssl.SSLError:
            return self.fail(60, _UNTRUSTED_ON_WINDOWS if process.windows else _UNTRUSTED)
        except ConnectionRefusedError:
            return self.fail(
                7, f"Failed to connect to {address.host} port {address.port}: Connection refused"
            )
        except (ConnectionError, asyncio.IncompleteReadError):
            return self.fail(52, "Empty reply from server")
        except OSError as error:
            return self.fail(
                7, f"Failed to connect to {address.host} port {address.port}: {why(error)}"
            )
        return self._show(answer)

    def _data(self) -> bytes | None:
        options, process = self.options, self.process
        pieces: list[bytes] = []
        for name in ("d", "data-binary", "data-raw", "data-urlencode"):
            for value in options.values.get(name, []):
                if value.startswith("@") and name != "data-raw":
                    try:
                        pieces.append(process.files.read(value[1:]))
                    except OSError:
                        pieces.append(b"")
                else:
                    pieces.append(value.encode("utf-8", "surrogateescape"))
        if options.value("T"):
            return process.files.read(options.value("T"))
        return b"&".join(pieces) if pieces else None

    def _show(self, answer: netclient.Fetched) -> int:
        options, process = self.options, self.process
        if "f" in options and answer.status >= 400:
            return self.fail(
                22,
                f"The requested URL returned error: {answer.status} {answer.reason}".rstrip(),
                answer,
            )
        out = b""
        if "i" in options or "I" in options:
            out += f"{answer.version} {answer.status} {answer.reason}\r\n".encode()
            out += (
                "".join(f"{name}: {value}\r\n" for name, value in answer.headers).encode() + b"\r\n"
            )
        if "v" in options:
            process.complain(f"< {answer.version} {answer.status} {answer.reason}")
            for name, value in answer.headers:
                process.complain(f"< {name}: {value}")
            process.complain("<")
        out += answer.body
        name = options.value("o")
        if "O" in options:
            name = netclient.split_url(self.url).target.split("?")[0].rpartition("/")[2]
        if not name or name == "-":
            process.stdout.write(out)
        else:
            try:
                process.open_output(name).write(out)
            except OSError:
                return self.fail(23, "Failed writing body")
        self._write_out(answer)
        return 0

    def _write_out(self, answer: netclient.Fetched | None) -> None:
        """Also printed after a failure."""
        shape = self.options.value("w")
        if not shape:
            return
        seconds = self.process.context.clock.monotonic() - self.started
        shown = shape.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r")
        code = f"{answer.status if answer is not None else 0:03d}"
        for mark, value in (
            ("http_code", code),
            ("response_code", code),
            ("size_download", str(len(answer.body) if answer is not None else 0)),
            ("time_total", f"{seconds:.6f}"),
            ("content_type", answer.header("Content-Type") if answer is not None else ""),
            ("url_effective", answer.url if answer is not None else self.url),
            ("time_connect", "0.000100" if answer is not None else "0.000000"),
            ("remote_ip", ""),
        ):
            shown = shown.replace("%{" + mark + "}", value)
        self.process.write(shown)


COMMANDS: dict[str, Command] = {"curl": curl, "wget": wget}
