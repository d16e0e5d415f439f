"""`transom rehearse`: move the workloads of a running cluster to nodes of another Windows build."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from transom.cli import console
from transom.cli.command import Command
from transom.node.settings import name_option

if TYPE_CHECKING:
    from transom.cluster.lifecycle import ControlCall

HELP = """\
Rehearse the move to another Windows build on a running cluster, and report which workloads run on
the new nodes and why the others do not.

run adds a node of the new build for each Windows node of another build, cordons the old nodes and
evicts their pods; PodDisruptionBudgets count. DaemonSets are not evicted; their pods on the new nodes
must become ready. The exit code is 1 if a workload does not run on the new nodes. end uncordons the
old nodes, and drains and deletes the new ones. To check manifests without a cluster, see
`transom lint --from --to`."""
EXAMPLES = """\
  transom rehearse run --build 20348
  transom rehearse run --build ltsc2025 --timeout 300 -o json
  transom rehearse end"""

_SECONDS = 120.0


def add_rehearse_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = ("run", "end")
    parser.add_argument("verb", choices=verbs, metavar="VERB", help=", ".join(verbs))
    parser.add_argument("--build", default="20348", help="of the new nodes (default: 20348)")
    parser.add_argument(
        "--timeout",
        type=float,
        default=_SECONDS,
        metavar="SECONDS",
        help="how long pods may take to become ready (default: 120)",
    )
    console.add_name_option(parser)
    console.add_output_option(parser)


def run_rehearse_command(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle
    from transom.kit.user_errors import EXIT_USAGE, UserError
    from transom.scenarios import rehearsal
    from transom.windows.builds import build_by_name

    config = lifecycle.existing_cluster(args.name)
    cluster = _RunningCluster(lifecycle.control_client(config, 30.0))
    if args.verb == "end":
        deleted = asyncio.run(rehearsal.end_rehearsal(cluster))
        if args.output != "text":
            done = [{"name": name, "result": "deleted"} for name in deleted]
            console.print_value(done, args.output)
        for name in deleted if args.output == "text" else ():
            print(f"node/{name} deleted")
        if not deleted:
            console.print_progress("no rehearsal to end: no node was added by transom rehearse run")
        return 0
    build = build_by_name(args.build)
    if build is None:
        raise UserError(f"unknown Windows build {args.build!r}", "", EXIT_USAGE)
    found = asyncio.run(
        rehearsal.rehearse_move(cluster, build.number, args.timeout, console.print_progress)
    )
    if args.output != "text":
        moves = [move._asdict() for move in found.moves]
        console.print_value({**found._asdict(), "moves": moves}, args.output)
    else:
        rows = [
            (move.workload, str(move.pods), move.result, move.reason or "-") for move in found.moves
        ]
        console.print_table([("WORKLOAD", "PODS", "RESULT", "REASON"), *rows])
        console.print_progress(f"end it with: transom rehearse end{name_option(args.name)}")
    return 0 if all(move.ok for move in found.moves) else 1


class _RunningCluster:
    """`RehearsalCluster` of a cluster of this machine."""

    def __init__(self, call: ControlCall) -> None:
        self._call = call

    async def call(
        self, method: str, path: str, body: Any = None, media: str = "application/json"
    ) -> Any:
        return self._call(method, path, body, media)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


COMMAND = Command(HELP, EXAMPLES, add_rehearse_arguments, run_rehearse_command)
