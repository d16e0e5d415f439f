"""`transom down`: stop a cluster."""

from __future__ import annotations

import argparse

from transom.cli import console

HELP = """\
Stop a cluster and take its context out of the kubeconfig.

All its objects stay on disk: `transom up` brings them back, `transom delete` removes them."""
EXAMPLES = """\
  transom down
  transom down --name blue
  transom down --all"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.name_option(parser)
    parser.add_argument("--all", action="store_true", help="stop every cluster of yours")


def run(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle
    from transom.cluster.config import known_clusters

    for name in known_clusters() if args.all else [args.name]:
        _, stopped = lifecycle.down(name, console.tell)
        print(f"Cluster {name} {'stopped' if stopped else 'was not running'}; transom up brings it back.")
    return 0
