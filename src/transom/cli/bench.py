"""`transom bench api`: measure an API server, ours or any other."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cli import console

if TYPE_CHECKING:
    from transom.bench.api import Plan
    from transom.bench.client import Target
    from transom.bench.measure import Server

HELP = """\
Measure an API server: rates and latencies of creates, gets, patches, lists, watches and deletes.

Without --kubeconfig the cluster --name is measured, its CPU time and memory included. With it, the server of any
kubeconfig's current context. The work happens in a namespace of its own that is removed afterwards."""
EXAMPLES = """\
  transom bench api
  transom bench api --objects 10000 --clients 64 --tests create,get
  transom bench api --kubeconfig other.yaml --output json > figures.json"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("object", choices=("api",), help="what to measure")
    console.name_option(parser)
    parser.add_argument("--kubeconfig", type=console.absolute, metavar="FILE", help="measure the server of this file")
    parser.add_argument("--context", metavar="NAME", help="its context (default: the current one)")
    parser.add_argument("--objects", type=positive, default=3000, metavar="N", help="of each kind (default: 3000)")
    parser.add_argument("--clients", type=numbers, default=[1, 16, 64], metavar="N,N", help="default: 1,16,64")
    parser.add_argument("--tests", type=lambda text: text.split(","), metavar="TEST,TEST", help="default: all")
    parser.add_argument("--watchers", type=positive, default=100, metavar="N", help="default: 100")
    console.output_option(parser)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def numbers(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def run(args: argparse.Namespace) -> int:
    from transom.bench import api
    from transom.bench.client import BenchError, target_from
    from transom.bench.measure import Server
    from transom.cluster.errors import ClusterError

    tests = args.tests or list(api.TESTS)
    unknown = [test for test in tests if test not in api.TESTS]
    if unknown:
        raise ClusterError(f"there is no test {unknown[0]!r}", f"the tests are {', '.join(api.TESTS)}")
    path, pid = (args.kubeconfig, None) if args.kubeconfig else _own(args.name)
    plan = api.Plan(tests, args.objects, args.clients, args.watchers)
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            results = runner.run(_measure(target_from(path, args.context), Server(pid), plan, args.output == "text"))
    except BenchError as error:
        raise ClusterError(str(error), "is the server up? see transom status") from error
    if args.output != "text":
        console.show(results, args.output)
    return 1 if any(result["errors"] for result in results["results"]) else 0


def _own(name: str) -> tuple[Path, int | None]:
    from transom.cluster import daemon, lifecycle
    from transom.cluster.errors import ClusterError

    config = lifecycle.existing(name)
    pid = daemon.running_pid(config)
    if not pid:
        raise ClusterError(f"cluster {name!r} is not running", f"start it with: transom up --name {name}")
    return config.own_kubeconfig, pid


async def _measure(target: Target, server: Server, plan: Plan, text: bool) -> dict[str, Any]:
    from transom.bench import api

    results = []
    if text:
        print(f"{'TEST':<28}{'CLIENTS':>8}{'COUNT':>8}{'PER SECOND':>12}{'P50 MS':>9}{'P99 MS':>9}{'SERVER CPU S':>14}")
    else:
        console.tell(f"measuring {', '.join(plan.tests)} ...")
    async for result in api.run(target, server, plan):
        line = result.report()
        results.append(line)
        if text:
            cpu = line.get("serverCpuSeconds", "-")
            print(f"{line['test']:<28}{line['clients']:>8}{line['count']:>8}{line['perSecond']:>12.0f}"
                  f"{line['p50Ms']:>9.2f}{line['p99Ms']:>9.2f}{cpu:>14}", flush=True)  # fmt: skip
            for error, count in line["errors"].items():
                console.failure(f"{count} times: {error}")
    resident = server.resident_mib()
    if text and resident is not None:
        print(f"resident memory of the server: {resident} MiB")
    return {"results": results, "serverResidentMiB": resident}
