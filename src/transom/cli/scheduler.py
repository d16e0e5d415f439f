"""`transom scheduler`: the scheduler alone, against any API server."""

from __future__ import annotations

import argparse

from transom.cli import console
from transom.cli.command import Command, file_path
from transom.cli.switches import SwitchAction

HELP = """\
Run the scheduler in the foreground against the API server of a kubeconfig, until interrupted.

It schedules pods whose schedulerName is one of its profiles, by default "default-scheduler".
Several instances can run; the one that holds the lease kube-system/kube-scheduler is active, the
others stand by. `transom up` includes a scheduler; use this verb for pods with another
schedulerName."""
EXAMPLES = """\
  transom scheduler --kubeconfig ./kubeconfig
  transom scheduler --kubeconfig ./kubeconfig --config ./scheduler.yaml --leader-elect=false
  transom scheduler --config ./scheduler.yaml --plugin ./pod_group.py:PodGroup"""


def add_scheduler_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_target_options(parser)
    parser.add_argument(
        "--config",
        type=file_path,
        metavar="FILE",
        help="a KubeSchedulerConfiguration (kubescheduler.config.k8s.io)",
    )
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="FILE.py:CLASS",
        help="load an out-of-tree plugin, also as MODULE:CLASS; the configuration enables it. Repeatable",
    )
    parser.add_argument(
        "--leader-elect",
        action=SwitchAction,
        default=None,
        help="use leader election (default: from the configuration, else true)",
    )
    parser.add_argument(
        "--metrics-bind-address",
        default="",
        metavar="IP:PORT",
        help="serve /metrics and /healthz over HTTP, without authentication (default: off)",
    )


def run_scheduler_command(args: argparse.Namespace) -> int:
    from transom.cluster.components import SchedulerOptions, run_scheduler
    from transom.kit import logs

    logs.set_up_logging()
    options = SchedulerOptions(
        console.target_kubeconfig(args),
        args.context,
        args.config,
        args.leader_elect,
        tuple(args.plugin),
        args.metrics_bind_address,
    )
    run_scheduler(options)
    return 0


COMMAND = Command(HELP, EXAMPLES, add_scheduler_arguments, run_scheduler_command)
