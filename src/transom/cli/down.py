"""`transom down`: stop a cluster."""

from __future__ import annotations

import argparse

from transom.cli import console
from transom.cli.command import Command

HELP = """\
Stop a cluster and remove its context from the kubeconfig.

Its objects stay on disk: `transom up` starts the cluster with them again, `transom delete` removes them."""
EXAMPLES = """\
  transom down
  transom down --name blue
  transom down --all
  transom down --all --dry-run"""


def add_down_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_cluster_options(parser, "stop all your clusters")
    console.add_dry_run_option(parser, "print what would be stopped")


def run_down_command(args: argparse.Namespace) -> int:
    from transom.cluster import config as configs
    from transom.cluster import lifecycle
    from transom.node.settings import name_option

    def stop(name: str) -> None:
        if args.dry_run:
            running = lifecycle.cluster_status_by_name(name)["state"] != "stopped"
            print(f"Would stop cluster {name}." if running else f"Cluster {name} is not running.")
            return
        stopped = lifecycle.stop_cluster(name, console.print_progress)
        _, problem = configs.load_or_default_config(name)
        state = "stopped" if stopped else "was not running"
        if problem:
            print(
                f"Cluster {name} {state}, and cannot start: {problem}; repair the file, or delete "
                f"the cluster with: transom delete{name_option(name)}"
            )
        else:
            print(f"Cluster {name} {state}; start it with: transom up{name_option(name)}")

    return console.for_each_cluster(args, stop)


COMMAND = Command(HELP, EXAMPLES, add_down_arguments, run_down_command)
