"""`transom apiserver`: the control plane in the foreground."""

from __future__ import annotations

import argparse

from transom.cli import console
from transom.cli.command import Command

HELP = """\
Run the control plane in the foreground, logging to standard error, until it is interrupted.

This is the same cluster that `transom up` starts, with the same state. Your kubeconfig is not
changed unless you pass --kubeconfig; the state directory of the cluster contains its own."""
EXAMPLES = """\
  transom apiserver
  transom apiserver --name blue --port 7443
  transom apiserver --kubeconfig ./kubeconfig
  transom apiserver --no-nodes --bind-address 10.0.0.1 --store etcd://10.0.0.1,10.0.0.2,10.0.0.3
  transom apiserver --audit-policy ./policy.yaml --audit-log ./audit.log"""


def add_apiserver_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_start_options(parser)
    parser.set_defaults(servers=None)


def run_apiserver_command(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle

    lifecycle.serve_in_foreground(console.add_up_options(args), console.print_progress)
    return 0


COMMAND = Command(HELP, EXAMPLES, add_apiserver_arguments, run_apiserver_command)
