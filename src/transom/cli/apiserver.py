"""`transom apiserver`: the control plane in the foreground."""

from __future__ import annotations

import argparse

from transom.cli import console

HELP = """\
Run the control plane in the foreground, logging to standard error, until it is interrupted.

It is the same cluster that `transom up` would start, on the same state. Your kubeconfig is left alone unless you name
one; the cluster's own is in its state directory."""
EXAMPLES = """\
  transom apiserver
  transom apiserver --name blue --port 7443
  transom apiserver --kubeconfig ./kubeconfig"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.start_options(parser)


def run(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle

    wanted = lifecycle.Wanted(args.name, args.port, args.release, args.nodes, args.kubeconfig)
    lifecycle.foreground(wanted, console.tell)
    return 0
