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
  transom apiserver --kubeconfig ./kubeconfig
  transom apiserver --audit-policy ./policy.yaml --audit-log ./audit.log"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.start_options(parser)


def run(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle

    lifecycle.foreground(console.wanted(args), console.tell)
    return 0
