"""`transom logs`: the log of a cluster."""

from __future__ import annotations

import argparse
import os
import sys
import time

from transom.cli import console
from transom.cli.command import Command

HELP = "Show the log of a cluster, also if it is stopped or failed to start."
EXAMPLES = """\
  transom logs
  transom logs --tail 50
  transom logs --follow --name blue"""


def add_logs_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_name_option(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="follow the log")
    parser.add_argument("--tail", type=int, metavar="N", help="only the last N lines")


def run_logs_command(args: argparse.Namespace) -> int:
    from transom.cluster import daemon, lifecycle
    from transom.kit.user_errors import UserError

    config = lifecycle.existing_cluster(args.name)
    try:
        file = config.log.open("rb")
    except FileNotFoundError:
        raise UserError(
            f"cluster {args.name!r} has no log yet", "it was never started in the background"
        ) from None
    out = sys.stdout.buffer
    with file:
        if args.tail is not None:
            text = daemon.tail_log(config.log, args.tail) if args.tail > 0 else ""
            out.write(text.encode() + b"\n" if text else b"")
            file.seek(0, os.SEEK_END)
        while True:
            while piece := file.read(65536):
                out.write(piece)
            out.flush()
            if not args.follow:
                return 0
            time.sleep(0.1)


COMMAND = Command(HELP, EXAMPLES, add_logs_arguments, run_logs_command)
