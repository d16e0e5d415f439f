"""`transom explain-schedule`: why a pod is scheduled to a node, or to none."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from transom.cli import console
from transom.cli.command import Command, file_path

if TYPE_CHECKING:
    from transom.scheduler.explain import SchedulingExplanation

HELP = """\
Print the result of each scheduler plugin for a pod on each node: why the plugin rejects the node, or its score.

The result is for the current state of the cluster. A pod that already has a node is treated as if
it had none. Exit code 1 means that the pod cannot be scheduled."""
EXAMPLES = """\
  transom explain-schedule web-0
  transom explain-schedule shop/web-0 --output json
  transom explain-schedule web-0 --config ./scheduler.yaml     use another configuration"""


def add_explain_schedule_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="NAME or NAMESPACE/NAME")
    parser.add_argument(
        "--namespace", "-n", default="", metavar="NAMESPACE", help="default: that of the context"
    )
    console.add_target_options(parser)
    parser.add_argument(
        "--config", type=file_path, metavar="FILE", help="a KubeSchedulerConfiguration"
    )
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="FILE.py:CLASS",
        help="load an out-of-tree plugin that the configuration enables. Repeatable",
    )
    console.add_output_option(parser)


def run_explain_schedule_command(args: argparse.Namespace) -> int:
    from transom.cluster.components import explain_schedule

    namespace, _, name = args.pod.rpartition("/")
    found = explain_schedule(
        console.target_kubeconfig(args),
        args.context,
        args.config,
        namespace or args.namespace,
        name,
        args.plugin,
    )
    if args.output != "text":
        console.print_value(found.document(), args.output)
    else:
        _page(found)
    return 0 if found.best() else 1


def _page(found: SchedulingExplanation) -> None:
    print(
        f"Pod {found.namespace}/{found.pod}, scheduler {found.scheduler}"
        + (f", runs on {found.node}" if found.node else ", has no node")
    )
    if found.message:
        print(found.message)
    best = {node.name for node in found.best()}
    able = sorted((n for n in found.nodes if not n.reasons), key=lambda n: (-n.total, n.name))
    if able:
        print()
        plugins = list(able[0].scores)
        rows = [["NODE", "TOTAL", *plugins]]
        rows.append(["", "", *(f"x{able[0].scores[p][1]}" for p in plugins)])
        for node in able:
            mark = " *" if node.name in best else ""
            rows.append(
                [node.name + mark, str(node.total), *(str(node.scores[p][0]) for p in plugins)]
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        for row in rows:
            print(
                "  ".join(
                    cell.ljust(width) for cell, width in zip(row, widths, strict=True)
                ).rstrip()
            )
        print("\n* one of these is chosen")
    refused = [n for n in found.nodes if n.reasons]
    if refused:
        print()
        width = max(len(node.name) for node in refused)
        for node in refused:
            for i, (plugin, reasons) in enumerate(node.reasons.items()):
                print(f"{node.name if i == 0 else '':<{width}}  {plugin}: {'; '.join(reasons)}")


COMMAND = Command(HELP, EXAMPLES, add_explain_schedule_arguments, run_explain_schedule_command)
