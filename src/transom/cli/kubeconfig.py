"""`transom kubeconfig`: print a kubeconfig."""

from __future__ import annotations

import argparse
import sys

from transom.cli import console
from transom.cli.command import Command

HELP = "Print a kubeconfig that contains only this cluster, with its administrator as the user."
EXAMPLES = """\
  transom kubeconfig > blue.yaml
  kubectl --kubeconfig <(transom kubeconfig --name blue) get pods
  docker exec cluster transom kubeconfig --server https://localhost:32768 > kubeconfig"""


def add_kubeconfig_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_name_option(parser)
    parser.add_argument(
        "--server",
        metavar="URL",
        help="the address of the API server, where clients reach it under another one",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("yaml", "json", "text"),
        default="yaml",
        help="output format (default: %(default)s)",
    )


def run_kubeconfig_command(args: argparse.Namespace) -> int:
    from transom.cluster import kubeconfig, lifecycle
    from transom.cluster.pki import ensure_cluster_pki

    config = lifecycle.existing_cluster(args.name)
    content = kubeconfig.make_kubeconfig_entries(config, ensure_cluster_pki(config))
    if args.server:
        for entry in content["clusters"]:
            entry["cluster"]["server"] = args.server
    if args.output == "json":
        console.print_value(content, "json")
    else:
        sys.stdout.write(kubeconfig.render_kubeconfig(content).decode())
    return 0


COMMAND = Command(HELP, EXAMPLES, add_kubeconfig_arguments, run_kubeconfig_command)
