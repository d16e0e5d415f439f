"""`transom readiness`: the Windows Operational Readiness test cases."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from transom.cli import console
from transom.cli.command import Command

if TYPE_CHECKING:
    from transom.readiness.cases import ReadinessCase
    from transom.readiness.run import CaseResult

HELP = """\
Run the test cases of the Windows Operational Readiness specification against any Kubernetes
cluster with Linux and Windows nodes, and print the results by category.

Each case runs in a namespace of its own, which is deleted afterwards. Pods use the image agnhost of
Kubernetes' end-to-end tests. The exit code is 1 if a case fails."""
EXAMPLES = """\
  transom readiness
  transom readiness --category Core.Network --category Core.Storage
  transom readiness --kubeconfig ~/.kube/config --output json"""


def add_readiness_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--category",
        action="append",
        default=[],
        metavar="NAME",
        help="for example Core.Network or Extend.HostProcess (default: all)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="for one step of a case (default: 120)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only list the cases")
    console.add_target_options(parser)
    console.add_output_option(parser)


def run_readiness_command(args: argparse.Namespace) -> int:
    from transom.kit.user_errors import EXIT_USAGE, UserError
    from transom.readiness.cases import READINESS_CASES

    known = list(dict.fromkeys(case.category for case in READINESS_CASES))
    unknown = [name for name in args.category if name not in known]
    if unknown:
        raise UserError(
            f"there is no category {unknown[0]!r}", f"choose from {', '.join(known)}", EXIT_USAGE
        )
    cases = [case for case in READINESS_CASES if case.category in (args.category or known)]
    if args.dry_run:
        console.print_table(
            [("CATEGORY", "CASE"), *((case.category, case.description) for case in cases)]
        )
        return 0

    def report(result: CaseResult) -> None:
        console.print_progress(f"{result.result:<8}{result.category}: {result.description}")

    results = _run(args, cases, report)
    if args.output != "text":
        console.print_value([result._asdict() for result in results], args.output)
    else:
        _print_table(results)
    return int(any(result.result == "failed" for result in results))


def _run(
    args: argparse.Namespace,
    cases: list[ReadinessCase],
    report: Callable[[CaseResult], None],
) -> list[CaseResult]:
    from transom.client.api import ApiUnreachable
    from transom.client.http import HttpClient
    from transom.client.kubeconfig import KubeconfigError, load_kubeconfig
    from transom.kit.clock import RealClock
    from transom.kit.user_errors import UserError
    from transom.readiness.run import run_readiness

    async def ask() -> list[CaseResult]:
        clock = RealClock()
        config = load_kubeconfig(console.target_kubeconfig(args), args.context)
        client = HttpClient(config, clock, user_agent="transom-readiness")
        try:
            return await run_readiness(client, clock, cases, args.timeout, report)
        finally:
            await client.close()

    try:
        return asyncio.run(ask())
    except (KubeconfigError, ApiUnreachable) as problem:
        raise UserError(str(problem), "name a cluster with --name or --kubeconfig") from problem


def _print_table(results: list[CaseResult]) -> None:
    console.print_table(
        [
            ("CATEGORY", "RESULT", "SECONDS", "CASE"),
            *(
                (
                    one.category,
                    one.result,
                    f"{one.seconds:.1f}",
                    one.description + (f": {one.message}" if one.message else ""),
                )
                for one in results
            ),
        ]
    )
    counts = {name: sum(one.result == name for one in results) for name in _RESULTS}
    print("\n" + ", ".join(f"{count} {name}" for name, count in counts.items()))


_RESULTS = ("passed", "failed", "skipped")
COMMAND = Command(HELP, EXAMPLES, add_readiness_arguments, run_readiness_command)
