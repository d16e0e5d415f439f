"""`transom logs`: the log of a cluster."""

from __future__ import annotations

import argparse
import os
import sys
import time

from transom.cli import console

HELP = "Show the log of a cluster, also of one that is stopped or failed to start."
EXAMPLES = """\
  transom logs
  transom logs --tail 50
  transom logs --follow --name blue"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.name_option(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on showing what is added")
    parser.add_argument("--tail", type=int, metavar="N", help="only the last N lines")


def run(args: argparse.Namespace) -> int:
    from transom.cluster import daemon, lifecycle
    from transom.cluster.errors import ClusterError

    config = lifecycle.existing(args.name)
    try:
        file = config.log.open("rb")
    except FileNotFoundError:
        raise ClusterError(
            f"cluster {args.name!r} has no log yet", "it has never been started in the background"
        ) from None
    out = sys.stdout.buffer
    with file:
        if args.tail is not None:
            text = daemon.tail(config.log, args.tail) if args.tail > 0 else ""
            out.write(text.encode() + b"\n" if text else b"")
            file.seek(0, os.SEEK_END)
        while True:
            while piece := file.read(65536):
                out.write(piece)
            out.flush()
            if not args.follow:
                return 0
            time.sleep(0.1)
