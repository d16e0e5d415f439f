"""`transom scheduler`: the scheduler alone, against any API server."""

from __future__ import annotations

import argparse
from pathlib import Path

from transom.cli import console
from transom.cli.switches import Switch

HELP = """\
Run the scheduler in the foreground against the API server of a kubeconfig, until interrupted.

It takes pods whose schedulerName is that of one of its profiles, by default "default-scheduler". Several may run; the one
that holds the lease kube-system/kube-scheduler works, the others stand by. `transom up` has its scheduler built in and
needs none of this, but pods with another schedulerName can have a scheduler of their own."""
EXAMPLES = """\
  transom scheduler --kubeconfig ./kubeconfig
  transom scheduler --kubeconfig ./kubeconfig --config ./scheduler.yaml --leader-elect=false"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.target_options(parser)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1beta1)"
    )
    parser.add_argument(
        "--leader-elect", action=Switch, default=None,
        help="work only while holding the lease (default: as the configuration says, else yes)",
    )


def run(args: argparse.Namespace) -> int:
    from transom.cluster import scheduling
    from transom.kit import logs

    logs.setup()
    scheduling.run_alone(scheduling.Alone(console.target(args), args.context, args.config, args.leader_elect))
    return 0
