"""`transom delete`: remove a cluster with everything in it."""

from __future__ import annotations

import argparse

from transom.cli import console

HELP = "Stop a cluster, take its context out of the kubeconfig and remove its objects, keys and log for good."
EXAMPLES = """\
  transom delete
  transom delete --name blue"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.name_option(parser)


def run(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle

    config = lifecycle.delete(args.name, console.tell)
    print(f"Cluster {config.name} deleted.")
    return 0
