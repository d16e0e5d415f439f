"""`transom ps`: the containers of all nodes, as their runtimes see them."""

from __future__ import annotations

import argparse
import time
from typing import Any

from transom.cli import console
from transom.cli.command import Command

HELP = """\
Show the containers on the nodes of a running cluster as reported by the runtime of each node,
including those that the API no longer shows."""
EXAMPLES = """\
  transom ps
  transom ps --all                      include exited containers
  transom ps --node windows-1 --output json"""


def add_ps_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_name_option(parser)
    parser.add_argument("-a", "--all", action="store_true", help="include exited containers")
    parser.add_argument("--node", metavar="NODE", help="only containers on this node")
    parser.add_argument(
        "-n", "--namespace", metavar="NAMESPACE", help="only containers in this namespace"
    )
    console.add_output_option(parser)


def run_ps_command(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle

    call = lifecycle.control_client(lifecycle.existing_cluster(args.name))
    found = [
        c
        for c in call("GET", "/transom/containers")["items"]
        if (args.all or c["state"] == "running")
        and args.node in (None, c["node"])
        and args.namespace in (None, c["namespace"])
    ]
    if args.output != "text":
        console.print_value(found, args.output)
        return 0
    rows = [
        (
            "NODE",
            "NAMESPACE",
            "POD",
            "CONTAINER",
            "STATE",
            "RESTARTS",
            "CPU",
            "MEMORY",
            "AGE",
            "IMAGE",
        )
    ]
    for c in found:
        state = f"exited ({c['exitCode']})" if c["exitCode"] is not None else c["state"]
        rows.append(
            (
                c["node"],
                c["namespace"],
                c["pod"],
                c["container"],
                state,
                str(c["attempt"]),
                _cpu(c["cpuNanoCores"]),
                _memory(c["memoryBytes"]),
                _age(c["startedAt"]),
                c["image"],
            )
        )
    console.print_table(rows)
    return 0


def _cpu(cores: int | None) -> str:
    return "-" if cores is None else f"{cores // 1_000_000}m"


def _memory(size: int | None) -> str:
    return "-" if size is None else f"{size >> 20}Mi"


def _age(started: Any) -> str:
    return console.format_age(int(time.time() - started)) if started else "-"


COMMAND = Command(HELP, EXAMPLES, add_ps_arguments, run_ps_command)
