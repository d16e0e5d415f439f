"""`transom up`: start a cluster in the background."""

from __future__ import annotations

import argparse
import time

from transom.cli import console

HELP = """\
Start a cluster in the background and return when it is ready.

The cluster's context is put into your kubeconfig (--kubeconfig, else the first file of $KUBECONFIG, else
~/.kube/config) and made current. A cluster that was stopped with `transom down` comes back with all its objects, on the
same port and with the options of its last start."""
EXAMPLES = """\
  transom up
  transom up --name blue --port 7443
  transom up --kubeconfig /tmp/kubeconfig --no-nodes
  transom up --encrypt --audit-policy ./policy.yaml
  transom up --output json"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.start_options(parser)
    console.output_option(parser)


def run(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle

    began = time.monotonic()
    config = lifecycle.up(console.wanted(args), console.tell)
    took = time.monotonic() - began
    if args.output != "text":
        console.show(lifecycle.status(config), args.output)
        return 0
    print(f"Cluster {console.paint(config.name, 'bold')} is {console.paint('ready', 'green')} after {took:.2f} s:"
          f" Kubernetes {config.git_version} at {config.url}")  # fmt: skip
    print(f'kubectl context "{config.name}" is current in {config.kubeconfig}')
    return 0
