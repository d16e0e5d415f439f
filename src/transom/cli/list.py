"""`transom list`: the clusters of this user."""

from __future__ import annotations

import argparse

from transom.cli import console
from transom.cli.command import Command

HELP = """\
List your clusters, running or not. `get clusters` (kind), `cluster list` (k3d) and `profile list` (minikube) do the same.

The exit code is 0, whatever their state; `transom status --all` checks that all are ready."""
EXAMPLES = """\
  transom list
  transom list --quiet                    names only, one in each line
  transom list --output json"""


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="print names only")
    console.add_output_option(parser)


def run_list_command(args: argparse.Namespace) -> int:
    from transom.cli.status import print_status_table
    from transom.cluster import lifecycle
    from transom.cluster.config import known_clusters

    names = known_clusters()
    if args.quiet and args.output == "text":
        print(*names, sep="\n", end="\n" if names else "")
        return 0
    reports = [lifecycle.cluster_status_by_name(name) for name in names]
    if args.output != "text":
        console.print_value(reports, args.output)
    elif reports:
        print_status_table(reports)
    else:
        print("There are no clusters; start one with: transom up")
    return 0


COMMAND = Command(HELP, EXAMPLES, add_list_arguments, run_list_command)
