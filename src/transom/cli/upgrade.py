"""`transom upgrade`: restart the processes of a cluster with the installed version, one by one."""

from __future__ import annotations

import argparse

from transom.cli import console
from transom.cli.command import Command

HELP = """\
Restart the API servers of a cluster one after the other, then its nodes, with the Transom that is
installed now.

The cluster must have several API servers (transom up --servers 3): the others serve meanwhile, and
controllers and scheduler move to another server at once. Connections to a server that restarts are
closed, and clients open them again. etcd and the load balancer keep running; they restart with
`transom down` and `transom up`."""
EXAMPLES = """\
  transom upgrade
  transom upgrade --name blue"""

_SECONDS = 600.0


def add_upgrade_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_name_option(parser)


def run_upgrade_command(args: argparse.Namespace) -> int:
    from transom.cluster import daemon, lifecycle
    from transom.cluster.ha.supervisor import ask_supervisor
    from transom.kit.user_errors import UserError
    from transom.node.settings import name_option

    config = lifecycle.existing_cluster(args.name)
    option = name_option(config.name)
    if daemon.running_pid(config) is None:
        raise UserError(
            f"cluster {config.name!r} is not running",
            f"it uses the installed version when it starts: transom up{option}",
        )
    if not config.servers:
        raise UserError(
            f"cluster {config.name!r} has one API server, which cannot be replaced while it runs",
            f"restart the cluster: transom down{option} && transom up{option}",
        )
    ask_supervisor(config, "restart", console.print_progress, _SECONDS)
    print(f"Cluster {config.name} runs the installed version")
    return 0


COMMAND = Command(HELP, EXAMPLES, add_upgrade_arguments, run_upgrade_command)
