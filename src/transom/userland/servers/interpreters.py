"""Interpreters: enough of them for one-liners in manifests; otherwise they serve."""

from __future__ import annotations

import re

from transom.userland.api import Program, ProgramContext
from transom.userland.cpu import use_cpu
from transom.userland.files import FileView
from transom.userland.regex import compile_pattern
from transom.userland.servers import simple
from transom.userland.servers.base import ServerProgram, why_not
from transom.userland.servers.http import (
    ProgramHttpRequest,
    ProgramHttpResponse,
    program_text_response,
)
from transom.userland.servers.web import find_page, media_type_of

_BPI = re.compile(r"bpi\((\d+)\)")
_LARGEST_SOURCE = 64 * 1024
_PRINT = r"""print\s*\(?\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')\s*\)?"""
_EXIT = re.compile(r"(?:sys\.)?exit\s*+\(?\s*+(\d+)")
_SLEEP = re.compile(r"sleep\s*+\(?\s*+([\d.]+)")


def pi(digits: int) -> str:
    """The digits of pi as bignum prints them: the last one is rounded."""
    scale = 10 ** (digits + 9)

    def arctangent(inverse: int) -> int:
        term = total = scale // inverse
        n, sign = 3, -1
        while term:
            term //= inverse * inverse
            total += sign * (term // n)
            n, sign = n + 2, -sign
        return total

    value = 4 * (4 * arctangent(5) - arctangent(239))
    rounded = str((value + 5 * 10**9) // 10**10)
    return f"{rounded[0]}.{rounded[1:]}" if digits > 1 else rounded


def _script(context: ProgramContext, option: str) -> str | None:
    """The script: the text after an option such as -c, or the content of the named file."""
    arguments = list(context.argv[1:])
    for index, argument in enumerate(arguments):
        if (
            argument.startswith("-")
            and not argument.startswith("--")
            and argument.endswith(option)
            and index + 1 < len(arguments)
        ):
            return arguments[index + 1]
        if not argument.startswith("-"):
            files = FileView(context, context.cwd)
            return files.text(argument) if files.exists(argument) else None
    return None


def _one_liner(server: ServerProgram, source: str) -> Program:
    """Prints, sleeps and exits like the script; loops continue."""
    source = source[:_LARGEST_SOURCE]
    for found in compile_pattern(_PRINT).finditer(source):
        server.out((found[1] or found[2] or "").encode().decode("unicode_escape"))
    forever = re.search(r"while\s*\(?\s*(?:True|1)\b", source) is not None
    wait = sum(float(value) for value in _SLEEP.findall(source))
    code = _EXIT.search(source)
    server.on_signal = server.as_unhandled
    if not forever:
        server.later(wait, server.exit, int(code[1]) if code else 0)
    return server


def perl(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    source = _script(context, "e")
    if source is None:
        return simple.generic(context)
    digits = _BPI.search(source)
    if digits is not None:
        count = int(digits[1])
        server.on_signal = server.as_unhandled
        server.spawn(_print_pi(server, count))
        return server
    return _one_liner(server, source)


async def _print_pi(server: ServerProgram, digits: int) -> None:
    await use_cpu(server.context, digits * digits / 1e6)
    server.out(pi(digits))
    server.exit(0)


def python(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    arguments = list(context.argv[1:])
    if "-m" in arguments[:-1] and arguments[arguments.index("-m") + 1] in (
        "http.server",
        "SimpleHTTPServer",
    ):
        numbers = [argument for argument in arguments if argument.isdigit()]
        return _file_server(server, int(numbers[0]) if numbers else 8000)
    if arguments[:1] in (["--version"], ["-V"]):
        server.out(f"Python {context.env.get('PYTHON_VERSION', '3.9.1')}")
        server.exit(0)
        return server
    if not arguments:
        server.exit(0)
        return server
    source = _script(context, "c")
    if source is None or re.search(r"HTTPServer|flask|uvicorn|django", source, re.IGNORECASE):
        return simple.generic(context)
    return _one_liner(server, source)


def _file_server(server: ServerProgram, port: int) -> Program:
    context = server.context

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        found = find_page(context, context.cwd, request.path, ("index.html",))
        if found == 403:
            names = FileView(context, context.cwd).listdir("." + request.path)
            listing = "".join(f'<li><a href="{name}">{name}</a></li>\n' for name in names)
            return program_text_response(
                f"<title>Directory listing for {request.path}</title>\n<ul>\n{listing}</ul>\n",
                kind="text/html; charset=utf-8",
            )
        if isinstance(found, int):
            return program_text_response(
                f"Error response {found}\n", found, "text/html;charset=utf-8"
            )
        return ProgramHttpResponse(200, found[1], (("Content-type", media_type_of(found[0])),))

    server.on_signal = server.as_unhandled
    try:
        server.serve(port, handle, server="SimpleHTTP/0.6 Python/3.9.1")
    except OSError as error:
        server.err(f"OSError: [Errno 98] {why_not(error).capitalize()}")
        server.exit(1)
        return server
    server.out(f"Serving HTTP on 0.0.0.0 port {port} (http://0.0.0.0:{port}/) ...")
    return server


def node_program(context: ProgramContext) -> Program:
    if context.argv[1:2] in (("--version",), ("-v",)):
        server = ServerProgram(context)
        server.out(f"v{context.env.get('NODE_VERSION', '14.15.4')}")
        server.exit(0)
        return server
    return simple.generic(context)


def hello_world(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.out(
        "\nHello from Docker!\nThis message shows that your installation appears to be "
        "working correctly.\n\n"
        "To generate this message, Docker took the following steps:\n"
        " 1. The Docker client contacted the Docker daemon.\n"
        ' 2. The Docker daemon pulled the "hello-world" image from the Docker Hub.\n'
        f"    ({'windows-amd64, nanoserver' if context.os == 'windows' else 'amd64'})\n"
        " 3. The Docker daemon created a new container from that image which runs the\n"
        "    executable that produces the output you are currently reading.\n"
        " 4. The Docker daemon streamed that output to the Docker client, which sent it\n"
        "    to your terminal.\n"
    )
    server.exit(0)
    return server


def nonroot(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    server.out(
        f"UID: {context.credentials.uid}" if context.os == "linux" else context.credentials.user
    )
    server.exit(0)
    return server


def set_uid(context: ProgramContext) -> Program:
    """A setuid-root program: it runs as root unless the container forbids new privileges."""
    server = ServerProgram(context)
    server.out(
        f"Effective uid: {context.credentials.uid if context.credentials.no_new_privileges else 0}"
    )
    server.exit(0)
    return server
