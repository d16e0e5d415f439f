"""`transom scenario`: known faults of Windows nodes, one by one."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from transom.cli import console
from transom.cli.command import Command

if TYPE_CHECKING:
    from transom.scenarios.model import Scenario

HELP = """\
Produce a known fault of Windows nodes in a running cluster, and show what `transom doctor` reports
about it.

list shows the scenarios; show NAME what one does; run NAME produces the fault in the namespace
"scenario" and leaves it for you to examine; end NAME removes it."""
EXAMPLES = """\
  transom scenario list
  transom scenario show stale-remote-endpoints
  transom scenario run 65-backends
  transom doctor
  transom scenario end 65-backends"""


def add_scenario_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = ("list", "show", "run", "end")
    parser.add_argument("verb", choices=verbs, metavar="VERB", help=", ".join(verbs))
    parser.add_argument("scenario", nargs="?", default="", metavar="NAME", help="of the scenario")
    parser.add_argument("--node", default="", help="a Windows node (default: the first one)")
    console.add_name_option(parser)
    console.add_output_option(parser)


def run_scenario_command(args: argparse.Namespace) -> int:
    from transom.kit.user_errors import EXIT_USAGE, UserError
    from transom.scenarios.catalogue import SCENARIOS

    if args.verb == "list":
        return _list(list(SCENARIOS.values()), args.output)
    found = SCENARIOS.get(args.scenario)
    if found is None:
        raise UserError(
            f"there is no scenario {args.scenario!r}" if args.scenario else "NAME is required",
            f"choose one of {', '.join(SCENARIOS)}",
            EXIT_USAGE,
        )
    if args.verb == "show":
        _show(found, args.output)
        return 0
    return _run(found, args)


def _list(scenarios: list[Scenario], output: str) -> int:
    if output != "text":
        console.print_value([_document(one) for one in scenarios], output)
    else:
        rows = [(one.name, one.issue or "-", one.title) for one in scenarios]
        console.print_table([("NAME", "ISSUE", "WHAT"), *rows])
    return 0


def _document(one: Scenario) -> dict[str, Any]:
    names = ("name", "title", "issue", "symptom", "evidence", "remedy", "finding", "since", "until")
    values = one._asdict()
    return {name: values[name] for name in names}


def _show(one: Scenario, output: str) -> None:
    from transom.scenarios.model import scenario_releases

    if output != "text":
        console.print_value(_document(one), output)
        return
    print(console.colour_text(f"{one.name}: {one.title}", "bold"))
    for label, text in (
        ("Issue", one.issue),
        ("Symptom", one.symptom),
        ("Evidence", one.evidence),
        ("Remedy", one.remedy),
        ("Releases", scenario_releases(one)),
    ):
        if text:
            print(f"{label + ':':<10}{text}")


def _run(one: Scenario, args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle
    from transom.kit.user_errors import EXIT_USAGE, UserError
    from transom.machinery.releases.release import parse_release
    from transom.scenarios.cluster_calls import ClusterCalls
    from transom.scenarios.model import (
        end_scenario,
        happens_in,
        run_scenario,
        scenario_releases,
        wait_for_finding,
    )
    from transom.scenarios.nodes import scenario_node

    config = lifecycle.existing_cluster(args.name)
    if args.verb != "end" and not happens_in(one, parse_release(config.release)):
        raise UserError(
            f"the scenario {one.name} happens in Kubernetes {scenario_releases(one)}; cluster "
            f"{config.name} runs {config.release}",
            f"start another cluster with: transom up --name other --release {one.until or one.since}",
            EXIT_USAGE,
        )
    call = lifecycle.control_client(config)

    async def send(method: str, path: str, body: Any, media_type: str) -> Any:
        return call(method, path, body, media_type)

    cluster = ClusterCalls(send)
    node = scenario_node(call("GET", "/transom/nodes")["items"], args.node)
    if args.verb == "end":
        asyncio.run(end_scenario(one, cluster, node))
        print(f"scenario/{one.name} ended")
        return 0
    if args.output == "text":
        _show(one, "text")
        print(f"{'Node:':<10}{node.name}")
    found: list[dict[str, Any]] = []

    async def reported() -> bool:
        found[:] = await asyncio.to_thread(_findings, args)
        return any(one.finding in finding["what"] for finding in found)

    async def run() -> None:
        await run_scenario(one, cluster, node)
        await wait_for_finding(one, cluster, reported)

    asyncio.run(run())
    hits = [finding for finding in found if one.finding in finding["what"]]
    if args.output != "text":
        console.print_value({**_document(one), "node": node.name, "findings": found}, args.output)
    else:
        print("\ntransom doctor reports:")
        for finding in hits:
            print(f"  {finding['severity']}: {', '.join(finding['where'])}: {finding['what']}")
            print(f"    fix: {finding['remedy']}")
        console.print_progress(
            f"\nend it with: transom scenario end {one.name}" if hits else "\nnothing yet"
        )
    return 0 if hits else 1


def _findings(args: argparse.Namespace) -> list[dict[str, Any]]:
    from transom.cluster.config import load_config
    from transom.doctor import connect
    from transom.doctor.examine import examine

    config = load_config(args.name)
    assert config is not None, "the cluster runs"
    where = connect.doctor_target(config.own_kubeconfig, "")
    return [finding.document() for finding in examine(connect.take_snapshot(where))]


COMMAND = Command(HELP, EXAMPLES, add_scenario_arguments, run_scenario_command)
