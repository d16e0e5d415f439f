"""`transom demo`: deploy a demo workload in a new cluster."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from transom.cli import console
from transom.cli.command import Command

if TYPE_CHECKING:
    from transom.demo.deploy import DemoPage

HELP = """\
Run a web server on Linux and one on Windows, behind Services in the namespace "demo". Each page
shows the response of the other server. Returns when both are reachable.

With real containers (`transom up --runtime auto`) the server on Windows is nginx.exe, which pip
downloads once; without a network it is a small program shipped with transom."""
EXAMPLES = """\
  transom demo
  transom demo --offline                  download nothing
  transom demo --name blue --output json
  transom demo --remove"""


def add_demo_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_name_option(parser)
    parser.add_argument("--remove", action="store_true", help="remove the demo")
    parser.add_argument("--offline", action="store_true", help="download nothing")
    parser.add_argument(
        "--timeout", type=float, default=180, metavar="SECONDS", help="default: %(default)g"
    )
    console.add_output_option(parser)


def run_demo_command(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle
    from transom.demo import deploy as demo
    from transom.node.settings import name_option

    began = time.monotonic()
    config = lifecycle.existing_cluster(args.name)
    if args.remove:
        there = demo.remove_demo(
            lifecycle.control_client(config), console.print_progress, seconds=args.timeout
        )
        print("The demo is removed." if there else "There is no demo.")
        return 0
    pages = demo.deploy_demo(
        config.name,
        lifecycle.control_client(config),
        console.print_progress,
        fetch=not args.offline,
        seconds=args.timeout,
    )
    if args.output != "text":
        console.print_value([page._asdict() for page in pages], args.output)
    else:
        _print_pages(pages, time.monotonic() - began, name_option(config.name))
    return 0


def _print_pages(pages: Sequence[DemoPage], took: float, option: str) -> None:
    print(f"The demo is {console.colour_text('ready', 'green')} after {took:.2f} s. Open:")
    for page in pages:
        print(f"  {page.os.capitalize():<9}{page.url}   {page.program}")
    windows = any(page.os == "windows" for page in pages)
    print("\nTry:")
    print(f"  curl '{pages[0].url}'")
    print("  kubectl --namespace demo get pods,services --output wide")
    print(f"  kubectl --namespace demo logs deployment/{pages[0].os}")
    if windows:
        print("  kubectl --namespace demo exec deployment/windows -- cmd /c ver")
        print("  kubectl --namespace demo scale deployment/windows --replicas 3")
    print(f"  transom demo --remove{option}")


COMMAND = Command(HELP, EXAMPLES, add_demo_arguments, run_demo_command)
