"""`transom bench api`: benchmark an API server, Transom's or any other."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cli import console
from transom.cli.command import Command
from transom.node.settings import name_option

if TYPE_CHECKING:
    from transom.bench.api import BenchPlan
    from transom.bench.client import BenchTarget
    from transom.bench.measure import BenchServer

HELP = """\
Measure an API server: rates and latencies of creates, gets, patches, lists, watches and deletes.

Without --kubeconfig it measures the cluster --name, including CPU time and memory; with it, the
server of the current context. It works in a separate namespace that it removes afterwards."""
EXAMPLES = """\
  transom bench api
  transom bench api --objects 10000 --clients 64 --tests create,get
  transom bench api --kubeconfig other.yaml --output json > figures.json"""


def add_bench_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("object", choices=("api",), help="what to measure")
    console.add_name_option(parser)
    parser.add_argument(
        "--kubeconfig",
        type=console.absolute_path,
        metavar="FILE",
        help="measure the server of this kubeconfig",
    )
    parser.add_argument("--context", metavar="NAME", help="context (default: the current context)")
    parser.add_argument(
        "--objects",
        type=positive_number,
        default=3000,
        metavar="N",
        help="objects of each kind (default: 3000)",
    )
    parser.add_argument(
        "--clients", type=number_list, default=[1, 16, 64], metavar="N,N", help="default: 1,16,64"
    )
    parser.add_argument(
        "--tests", type=lambda text: text.split(","), metavar="TEST,TEST", help="default: all"
    )
    parser.add_argument(
        "--watchers", type=positive_number, default=100, metavar="N", help="default: 100"
    )
    console.add_output_option(parser)


def positive_number(text: str) -> int:
    return console.number_between(text, 1, 1_000_000_000, "must be a number, at least 1")


def number_list(text: str) -> list[int]:
    return [positive_number(part) for part in text.split(",")]


def run_bench_command(args: argparse.Namespace) -> int:
    from transom.bench import api
    from transom.bench.client import BenchError, bench_target_from
    from transom.bench.measure import BenchServer
    from transom.kit.user_errors import UserError

    tests = args.tests or list(api.TESTS)
    unknown = [test for test in tests if test not in api.TESTS]
    if unknown:
        raise UserError(
            f"there is no test {unknown[0]!r}", f"the tests are {', '.join(api.TESTS)}", 2
        )
    path, pids = (args.kubeconfig, []) if args.kubeconfig else _own(args.name)
    plan = api.BenchPlan(tests, args.objects, args.clients, args.watchers)
    try:
        from transom.kit.process import new_event_loop

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            results = runner.run(
                _measure(
                    bench_target_from(path, args.context),
                    BenchServer(pids),
                    plan,
                    args.output == "text",
                )
            )
    except BenchError as error:
        raise UserError(
            str(error), f"is the server up? see transom status{name_option(args.name)}"
        ) from error
    if args.output != "text":
        console.print_value(results, args.output)
    return 1 if any(result["errors"] for result in results["results"]) else 0


def _own(name: str) -> tuple[Path, list[int]]:
    """The kubeconfig of a cluster, and the processes of its API servers and load balancer."""
    from transom.cluster import daemon, lifecycle
    from transom.cluster.ha.supervisor import ask_supervisor
    from transom.kit.user_errors import UserError

    config = lifecycle.existing_cluster(name)
    pid = daemon.running_pid(config)
    if not pid:
        raise UserError(
            f"cluster {name!r} is not running", f"start it with: transom up{name_option(name)}"
        )
    servers = ask_supervisor(config, "status")["servers"] if config.servers else []
    return config.own_kubeconfig, [pid, *(one["pid"] for one in servers if one["pid"])]


async def _measure(
    target: BenchTarget, server: BenchServer, plan: BenchPlan, text: bool
) -> dict[str, Any]:
    from transom.bench import api

    results = []
    if text:
        print(
            f"{'TEST':<28}{'CLIENTS':>8}{'COUNT':>8}{'PER SECOND':>12}{'P50 MS':>9}{'P99 MS':>9}{'SERVER CPU S':>14}"
        )
    else:
        console.print_progress(f"measuring {', '.join(plan.tests)} ...")
    async for result in api.run_benchmark(target, server, plan):
        line = result.report()
        results.append(line)
        if text:
            cpu = line.get("serverCpuSeconds", "-")
            print(
                f"{line['test']:<28}{line['clients']:>8}{line['count']:>8}{line['perSecond']:>12.0f}"
                f"{line['p50Ms']:>9.2f}{line['p99Ms']:>9.2f}{cpu:>14}",
                flush=True,
            )
            for error, count in line["errors"].items():
                console.print_failure(f"{count} times: {error}")
    resident = server.resident_mib()
    if text and resident is not None:
        print(f"resident memory of the server: {resident} MiB")
    return {"results": results, "serverResidentMiB": resident}


COMMAND = Command(HELP, EXAMPLES, add_bench_arguments, run_bench_command)
