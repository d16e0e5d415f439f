"""Programs that run other people's programs: just enough of them for one-liners in manifests, else they serve."""

from __future__ import annotations

import re

from transom.runtime.sim.program_api import Program, ProgramContext
from transom.runtime.sim.programs.computing import compute
from transom.runtime.sim.programs.fileview import FileView
from transom.runtime.sim.programs.servers import simple
from transom.runtime.sim.programs.servers.base import Server, why_not
from transom.runtime.sim.programs.servers.http import Request, Response, text
from transom.runtime.sim.programs.servers.web import find_page, kind_of

_BPI = re.compile(r"bpi\((\d+)\)")
_PRINT = re.compile(r"""print\s*\(?\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')\s*\)?""")
_EXIT = re.compile(r"(?:sys\.)?exit\s*\(?\s*(\d+)")
_SLEEP = re.compile(r"sleep\s*\(?\s*([\d.]+)")


def pi(digits: int) -> str:
    """So many digits, as bignum prints them: the first one before the point, the last one rounded."""
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
    """What is run: the text behind an option such as -c, or the content of the file that is named."""
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


def _one_liner(server: Server, source: str) -> Program:
    """Prints what it prints, sleeps as long as it sleeps, exits with its code; loops go on."""
    for double, single in _PRINT.findall(source):
        server.out((double or single).encode().decode("unicode_escape"))
    forever = re.search(r"while\s*\(?\s*(?:True|1)\b", source) is not None
    wait = sum(float(value) for value in _SLEEP.findall(source))
    code = _EXIT.search(source)
    server.on_signal = server.as_unhandled
    if not forever:
        server.later(wait, server.exit, int(code[1]) if code else 0)
    return server


def perl(context: ProgramContext) -> Program:
    server = Server(context)
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


async def _print_pi(server: Server, digits: int) -> None:
    await compute(server.context, digits * digits / 1e6)
    server.out(pi(digits))
    server.exit(0)


def python(context: ProgramContext) -> Program:
    server = Server(context)
    arguments = list(context.argv[1:])
    if "-m" in arguments[:-1] and arguments[arguments.index("-m") + 1] in ("http.server", "SimpleHTTPServer"):
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


def _file_server(server: Server, port: int) -> Program:
    context = server.context

    def handle(request: Request) -> Response:
        found = find_page(context, context.cwd, request.path, ("index.html",))
        if found == 403:
            names = FileView(context, context.cwd).listdir("." + request.path)
            listing = "".join(f'<li><a href="{name}">{name}</a></li>\n' for name in names)
            return text(
                f"<title>Directory listing for {request.path}</title>\n<ul>\n{listing}</ul>\n", kind="text/html; charset=utf-8"
            )
        if isinstance(found, int):
            return text(f"Error response {found}\n", found, "text/html;charset=utf-8")
        return Response(200, found[1], (("Content-type", kind_of(found[0])),))

    server.on_signal = server.as_unhandled
    try:
        server.serve(port, handle, server="SimpleHTTP/0.6 Python/3.9.1")
    except OSError as error:
        server.err(f"OSError: [Errno 98] {why_not(error).capitalize()}")
        server.exit(1)
        return server
    server.out(f"Serving HTTP on 0.0.0.0 port {port} (http://0.0.0.0:{port}/) ...")
    return server


def node(context: ProgramContext) -> Program:
    if context.argv[1:2] in (("--version",), ("-v",)):
        server = Server(context)
        server.out(f"v{context.env.get('NODE_VERSION', '14.15.4')}")
        server.exit(0)
        return server
    return simple.generic(context)


def hello_world(context: ProgramContext) -> Program:
    server = Server(context)
    server.out(
        "\nHello from Docker!\nThis message shows that your installation appears to be working correctly.\n\n"
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
    server = Server(context)
    server.on_signal = server.as_go
    server.out(f"UID: {context.uid}" if context.os == "linux" else context.user)
    server.exit(0)
    return server


def set_uid(context: ProgramContext) -> Program:
    """A file of root's that makes who runs it root, unless the container forbids that."""
    server = Server(context)
    server.out(f"Effective uid: {context.uid if context.no_new_privileges else 0}")
    server.exit(0)
    return server
