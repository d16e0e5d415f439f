"""`transom explain-schedule`: why a pod goes to a node, or to none."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cli import console

if TYPE_CHECKING:
    from transom.scheduler.explain import Explanation

HELP = """\
Print, for each node, what each plugin of the scheduler says about a pod: why it refuses the node, or how much it likes it.

The answer holds for the cluster as it is now. A pod that runs already is looked at as if it had no node yet. Exit code 1
means that no node will do."""
EXAMPLES = """\
  transom explain-schedule web-0
  transom explain-schedule shop/web-0 --output json
  transom explain-schedule web-0 --config ./scheduler.yaml     what another configuration would do"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="NAME or NAMESPACE/NAME")
    parser.add_argument("--namespace", "-n", default="", metavar="NAME", help="default: that of the context")
    console.target_options(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help="a KubeSchedulerConfiguration")
    console.output_option(parser)


def run(args: argparse.Namespace) -> int:
    from transom.cluster import scheduling

    namespace, _, name = args.pod.rpartition("/")
    found = scheduling.explain(console.target(args), args.context, args.config, namespace or args.namespace, name)
    if args.output != "text":
        console.show(_document(found), args.output)
    else:
        _page(found)
    return 0 if found.best() else 1


def _document(found: Explanation) -> dict[str, Any]:
    return {
        "namespace": found.namespace, "pod": found.pod, "schedulerName": found.scheduler, "nodeName": found.node,
        "message": found.message, "best": [node.name for node in found.best()],
        "nodes": [
            {
                "name": node.name, "feasible": not node.reasons, "reasons": node.reasons,
                "scores": {name: {"score": score, "weight": weight} for name, (score, weight) in node.scores.items()},
                "total": node.total,
            } for node in found.nodes
        ],
    }


def _page(found: Explanation) -> None:
    print(f"Pod {found.namespace}/{found.pod}, scheduler {found.scheduler}"
          + (f", runs on {found.node}" if found.node else ", has no node"))
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
            rows.append([node.name + mark, str(node.total), *(str(node.scores[p][0]) for p in plugins)])
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        print("\n* one of these is chosen")
    refused = [n for n in found.nodes if n.reasons]
    if refused:
        print()
        width = max(len(node.name) for node in refused)
        for node in refused:
            for i, (plugin, reasons) in enumerate(node.reasons.items()):
                print(f"{node.name if i == 0 else '':<{width}}  {plugin}: {'; '.join(reasons)}")
