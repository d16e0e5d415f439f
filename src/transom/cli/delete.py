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
  transom delete --all
  transom delete --all --dry-run"""
_NONE = "There is no cluster {}; nothing to delete."


def add_delete_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_cluster_options(parser, "delete all your clusters")
    console.add_dry_run_option(parser, "print what would be deleted")


def run_delete_command(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle
    from transom.cluster.config import known_clusters
    from transom.node.settings import clusters_dir

    def delete(name: str) -> None:
        if args.dry_run:
            exists = name in known_clusters()
            folder = clusters_dir() / name
            print(f"Would delete cluster {name} and {folder}." if exists else _NONE.format(name))
        elif lifecycle.delete_cluster(name, console.print_progress):
            print(f"Cluster {name} deleted.")
        else:
            print(_NONE.format(name))

    return console.for_each_cluster(args, delete)


COMMAND = Command(HELP, EXAMPLES, add_delete_arguments, run_delete_command)
