"""`transom console`: serve the web console of a cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from transom.cli import console
from transom.cli.command import Command, file_path

if TYPE_CHECKING:
    from transom.client.kubeconfig import RestConfig
    from transom.web.server import Console, ConsoleAddress

HELP = """\
Serve the web console of a cluster until Ctrl-C, and print its address with a login link.

The link works once, within ten minutes; press Enter for another one. The console acts as the
user of the kubeconfig: it shows and changes what this user may see and change. It works with any
Kubernetes cluster and loads nothing from other hosts.

By default it listens on 127.0.0.1 only. Another address needs a certificate."""
EXAMPLES = """\
  transom console
  transom console --name blue --port 8899
  transom console --kubeconfig ~/.kube/config --context staging
  transom console --bind 0.0.0.0 --host build-7.example.com --cert-file tls.crt --key-file tls.key
  transom up --console               start a cluster and its console"""


def add_console_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_target_options(parser)
    serving = parser.add_argument_group("serving")
    serving.add_argument(
        "--port",
        type=console.port_number,
        default=0,
        metavar="N",
        help="port of the console; 0 (default) selects a free port",
    )
    serving.add_argument(
        "--bind",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default: %(default)s)",
    )
    serving.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="additional host name that browsers may use",
    )
    serving.add_argument("--cert-file", type=file_path, metavar="FILE", help="PEM, to serve HTTPS")
    serving.add_argument("--key-file", type=file_path, metavar="FILE", help="PEM")


def run_console_command(args: argparse.Namespace) -> int:
    from transom.client.kubeconfig import KubeconfigError, load_kubeconfig
    from transom.kit.user_errors import UserError

    address = _address(args)
    try:
        target = load_kubeconfig(console.target_kubeconfig(args), args.context)
    except (KubeconfigError, OSError, ValueError) as problem:
        hint = "name a cluster with --name, or a file with --kubeconfig"
        raise UserError(str(problem), hint) from problem
    return serve_console(target, address)


def serve_console(
    target: RestConfig,
    address: ConsoleAddress,
    report: Callable[[dict[str, str]], None] | None = None,
) -> int:
    """Serves in the foreground until a signal. `report` gets the address and the login link, for
    programs; without it, both are printed for people.
    """
    import asyncio

    from transom.kit import logs
    from transom.kit.clock import RealClock
    from transom.kit.process import use_one_malloc_arena
    from transom.kit.user_errors import UserError
    from transom.web.server import start_console

    logs.set_up_logging()
    use_one_malloc_arena()

    async def main() -> None:
        try:
            running = await start_console(target, RealClock(), address)
        except OSError as problem:
            why = f"cannot listen on {address.host}:{address.port}: {problem.strerror}"
            raise UserError(why, "choose another port with --port N") from problem
        if report is not None:
            report({"address": running.origin, "loginLink": running.make_login_link()})
            await _serve_until_signal(running)
            return
        print(f"Console of {target.context or target.host} as {target.user}: {running.origin}")
        await _serve_with_links(running)

    asyncio.run(main())
    return 0


async def _serve_with_links(running: Console) -> None:
    """Serves, and prints a login link now and whenever the user presses Enter."""
    import asyncio

    def print_link() -> None:
        print(f"log in once with: {running.make_login_link()}", flush=True)

    def on_input() -> None:
        if sys.stdin.readline():
            print_link()
        else:
            asyncio.get_running_loop().remove_reader(sys.stdin)

    print_link()
    if _can_ask():
        print("Enter prints a new login link, Ctrl-C stops the console.", flush=True)
        asyncio.get_running_loop().add_reader(sys.stdin, on_input)
    await _serve_until_signal(running)


async def _serve_until_signal(running: Console) -> None:
    import asyncio

    from transom.kit.process import run_until_signal

    async def wait() -> None:
        await asyncio.Event().wait()

    try:
        await run_until_signal(wait)
    finally:
        await running.stop()


def _can_ask() -> bool:
    """Whether the input is a terminal or a pipe, that can be waited for."""
    import os
    import stat

    return sys.stdin.isatty() or stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode)


def _address(args: argparse.Namespace) -> ConsoleAddress:
    from ipaddress import ip_address

    from transom.http.tls import server_context
    from transom.kit.user_errors import EXIT_USAGE, UserError
    from transom.web.server import ConsoleAddress

    try:
        loopback = ip_address(args.bind).is_loopback
    except ValueError:
        hint = "for example --bind 0.0.0.0"
        raise UserError(f"{args.bind} is not an IP address", hint, EXIT_USAGE) from None
    if bool(args.cert_file) != bool(args.key_file) or (not loopback and not args.cert_file):
        raise UserError(
            "--cert-file and --key-file are required to serve other machines",
            "without --bind, the console serves this machine only and needs no certificate",
            EXIT_USAGE,
        )
    tls = server_context(args.cert_file, args.key_file) if args.cert_file else None
    return ConsoleAddress(args.bind, args.port, tuple(args.host), tls)


COMMAND = Command(HELP, EXAMPLES, add_console_arguments, run_console_command)
