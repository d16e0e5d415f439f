"""`transom kubeconfig`: a kubeconfig on standard output."""

from __future__ import annotations

import argparse
import sys

from transom.cli import console

HELP = "Print a kubeconfig that holds the cluster alone, with its administrator as the user."
EXAMPLES = """\
  transom kubeconfig > blue.yaml
  kubectl --kubeconfig <(transom kubeconfig --name blue) get pods"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.name_option(parser)
    parser.add_argument(
        "-o", "--output", choices=("yaml", "json", "text"), default="yaml", help="output format (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    from transom.cluster import kubeconfig, lifecycle
    from transom.cluster.pki import ensure

    config = lifecycle.existing(args.name)
    content = kubeconfig.entries(config, ensure(config))
    if args.output == "json":
        console.show(content, "json")
    else:
        sys.stdout.write(kubeconfig.render(content).decode())
    return 0
