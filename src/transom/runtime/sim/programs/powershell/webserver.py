"""The web server that Kubernetes' guide for Windows has as a one-liner: an HttpListener, an endless loop, and a page that
counts its callers. It is recognised as a whole, because a listener that blocks has no place in an interpreter of values."""

from __future__ import annotations

import ntpath
import re
from collections.abc import Callable, Sequence

from transom.runtime.sim.program_api import Program, ProgramContext
from transom.runtime.sim.programs.servers.base import Server
from transom.runtime.sim.programs.servers.http import Request, Response, text

_PREFIX = re.compile(r"Prefixes\.Add\(\s*['\"]https?://([^:/'\"]+)(?::(\d+))?/[^'\"]*['\"]\s*\)", re.IGNORECASE)
_HEADER = re.compile(r"<H1>(.*?)</H1>", re.IGNORECASE)
_LITERAL = re.compile(
    r"\$\w*(?:content|body|html|response|message|output|buffer)\w*\s*=\s*(?:\[[^\]]+\]::UTF8\.GetBytes\(\s*)?(['\"])(.*?)\1",
    re.IGNORECASE | re.DOTALL,
)


def recognised(source: str) -> Callable[[ProgramContext], Program] | None:
    """What serves in place of the script, when it is one of this kind."""
    if "httplistener" not in source.lower() or "getcontext" not in source.lower():
        return None
    prefix = _PREFIX.search(source)
    if prefix is None:
        return None
    port = int(prefix[2] or 80)
    counting = "callerCounts" in source or "callercounts" in source.lower()
    header = _HEADER.search(source)
    literal = _LITERAL.search(source)

    def start(context: ProgramContext) -> Program:
        server = Server(context)
        server.on_signal = server.as_unhandled
        counts: dict[str, int] = {}

        def handle(request: Request) -> Response:
            response = page(request)
            host = request.headers.get("host", f"localhost:{port}")
            shown = [f"> http://{host}{request.target}"] if "'> {0}'" in source or '"> {0}"' in source else []
            if "Write-Output $content" in source:
                shown.append(response.body.decode())
            if "'< {0}'" in source or '"< {0}"' in source:
                shown.append(f"< {response.status}")
            if shown:
                context.out("".join(f"{line}\r\n" for line in ("", *shown)).encode())
            return response

        def page(request: Request) -> Response:
            if not counting:
                return text(literal[2] if literal is not None else "", kind="text/html")
            caller = request.peer.rpartition(":")[0].strip("[]") or "127.0.0.1"
            counts[caller] = counts.get(caller, 0) + 1
            title = header[1] if header is not None else "Windows Container Web Server"
            own = context.ips[0] if context.ips else ""
            listed = "".join(f"<p>IP {own} callerCount {count} " for count in counts.values())
            return text(f"<html><body><H1>{title}</H1>{listed}</body></html>", kind="text/html")

        try:
            server.serve(port, handle, server="Microsoft-HTTPAPI/2.0")
        except OSError:
            server.err(
                'Exception calling "Start" with "0" argument(s): "Failed to listen on prefix '
                f"'http://*:{port}/' because it conflicts with an existing registration on the machine.\"\r"
            )
            server.exit(1)
            return server
        context.out(f"Listening at http://*:{port}/\r\n".encode())
        return server

    return start


def direct(argv: Sequence[str]) -> Callable[[ProgramContext], Program] | None:
    """As `recognised`, for a whole command line: such a server then needs no interpreter that waits for it."""
    if ntpath.basename(argv[0].replace("/", "\\")).lower().removesuffix(".exe") not in ("powershell", "pwsh"):
        return None
    for index, word in enumerate(argv[1:], 1):
        if word[:1] in "-/" and len(word) > 1 and "command".startswith(word[1:].lower()):
            return recognised(" ".join(argv[index + 1 :]))
    return None
