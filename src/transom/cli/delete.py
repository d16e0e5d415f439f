"""`transom delete`: remove a cluster with everything in it."""

from __future__ import annotations

import argparse

from transom.cli import console
from transom.cli.command import Command

HELP = """\
Stop a cluster, remove its context from the kubeconfig, and delete its objects, keys and log permanently.

It works in any state of the cluster: running, starting, stopped, or with unreadable files.
Deleting a cluster that does not exist is not an error."""
EXAMPLES = """\
  transom delete
  transom delete --name blue
  transom delete --all"""


def add_delete_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_cluster_options(parser, "delete all your clusters")


def run_delete_command(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle

    def delete(name: str) -> None:
        if lifecycle.delete_cluster(name, console.print_progress):
            print(f"Cluster {name} deleted.")
        else:
            print(f"There is no cluster {name}; nothing to delete.")

    return console.for_each_cluster(args, delete)


COMMAND = Command(HELP, EXAMPLES, add_delete_arguments, run_delete_command)
