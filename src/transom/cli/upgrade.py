"""`transom upgrade`: restart the processes of a cluster with the installed version, one by one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from transom.cli import console
from transom.cli.command import Command

if TYPE_CHECKING:
    from transom.cluster.config import ClusterConfig

HELP = """\
Restart the API servers of a cluster one after the other, then its nodes, with the Transom that is
installed now.

The cluster must have several API servers (transom up --servers 3): the others serve meanwhile, and
controllers and scheduler move to another server at once. Connections to a server that restarts are
closed, and clients open them again. etcd and the load balancer keep running; they restart with
`transom down` and `transom up`.

Each node is cordoned, drained, restarted and uncordoned before the next. Pods are evicted, so that
PodDisruptionBudgets apply, and lose the contents of emptyDir volumes. Pods of DaemonSets, static pods
and pods without a controller stay, and restart with the node.

All nodes of this machine run in one process. If a newer Transom has been installed since it was
started, it restarts first, and with it the containers of all nodes in place. With --no-drain, that
is all that happens to the nodes."""
EXAMPLES = """\
  transom upgrade
  transom upgrade --name blue --timeout 60
  transom upgrade --no-drain"""

_SUPERVISOR_SECONDS = 600.0
_REBOOT_SECONDS = 3600.0  # pods may take as long as the kubelet's configuration allows
_READY_SECONDS = 60.0
_POLL_SECONDS = 0.1


def add_upgrade_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_name_option(parser)
    parser.add_argument(
        "--no-drain",
        dest="drain",
        action="store_false",
        help="restart all nodes together, in place, without evicting pods",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=300,
        metavar="SECONDS",
        help="how long a node may take to drain (default: %(default)g)",
    )


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

    def restart(part: str) -> None:
        ask_supervisor(config, "restart", console.print_progress, _SUPERVISOR_SECONDS, parts=[part])

    outdated = _nodes_are_outdated(config)
    restart("servers")
    if not config.no_nodes:
        if outdated or not args.drain:
            restart("nodes")
        if args.drain:
            _restart_nodes_in_turn(config, args.timeout)
    print(f"Cluster {config.name} runs the installed version")
    return 0


def _nodes_are_outdated(config: ClusterConfig) -> bool:
    """Whether the process of the nodes is older than the installed Transom."""
    import time

    from transom.cluster.ha.rolling import installed_since
    from transom.cluster.ha.supervisor import ask_supervisor

    nodes = ask_supervisor(config, "status")["nodes"]
    if nodes is None or nodes["uptimeSeconds"] is None:
        return True
    # The uptime is in whole seconds.
    return installed_since(time.time() - nodes["uptimeSeconds"] - 1)


def _restart_nodes_in_turn(config: ClusterConfig, drain_seconds: float) -> None:
    import asyncio

    from transom.client.http import HttpClient
    from transom.client.kubeconfig import load_kubeconfig
    from transom.client.negotiation import NegotiatingClient
    from transom.cluster import lifecycle
    from transom.cluster.ha.rolling import RollingRestart
    from transom.kit.clock import RealClock
    from transom.kit.user_errors import UserError
    from transom.machinery.errors import ApiError
    from transom.node.settings import name_option

    call = lifecycle.control_client(config, _REBOOT_SECONDS)
    path = "/transom/nodes"
    clock = RealClock()

    async def restart(name: str) -> None:
        await asyncio.to_thread(call, "POST", f"{path}/{name}/reboot")
        deadline = clock.monotonic() + _READY_SECONDS
        while not any(node["ready"] for node in call("GET", path)["items"] if node["name"] == name):
            if clock.monotonic() > deadline:
                raise UserError(
                    f"node {name} is not ready {_READY_SECONDS:.0f} s after its restart",
                    f"see transom doctor{name_option(config.name)}",
                )
            await clock.sleep(_POLL_SECONDS)

    async def main() -> None:
        http = HttpClient(load_kubeconfig(config.own_kubeconfig), clock)
        client = NegotiatingClient(http, clock)
        rolling = RollingRestart(client, clock, restart, console.print_progress, drain_seconds)
        running = [
            node["name"] for node in call("GET", path)["items"] if node["state"] != "stopped"
        ]
        await rolling.run(running)

    try:
        asyncio.run(main())
    except (ApiError, OSError) as problem:
        raise UserError(f"the nodes cannot be restarted: {problem}") from problem


COMMAND = Command(HELP, EXAMPLES, add_upgrade_arguments, run_upgrade_command)
