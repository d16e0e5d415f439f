"""`transom scenario`: known faults of Windows nodes, one by one."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transom.cli import console
from transom.cli.command import Command

if TYPE_CHECKING:
    from transom.scenarios.model import Object, Scenario

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
_GONE_SECONDS = 60.0
_MERGE = "application/apply-patch+yaml"


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
    names = ("name", "title", "issue", "symptom", "evidence", "remedy", "finding")
    values = one._asdict()
    return {name: values[name] for name in names}


def _show(one: Scenario, output: str) -> None:
    if output != "text":
        console.print_value(_document(one), output)
        return
    print(console.colour_text(f"{one.name}: {one.title}", "bold"))
    for label, text in (
        ("Issue", one.issue),
        ("Symptom", one.symptom),
        ("Evidence", one.evidence),
        ("Remedy", one.remedy),
    ):
        if text:
            print(f"{label + ':':<10}{text}")


def _run(one: Scenario, args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle
    from transom.scenarios.model import end_scenario, run_scenario
    from transom.scenarios.nodes import scenario_node

    config = lifecycle.existing_cluster(args.name)
    call = lifecycle.control_client(config)
    cluster = ClusterCalls(call)
    node = scenario_node(call("GET", "/transom/nodes")["items"], args.node)
    if args.verb == "end":
        asyncio.run(end_scenario(one, cluster, node))
        print(f"scenario/{one.name} ended")
        return 0
    if args.output == "text":
        _show(one, "text")
        print(f"{'Node:':<10}{node.name}")
    asyncio.run(run_scenario(one, cluster, node))
    found = _findings(args)
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


class ClusterCalls:
    """`ScenarioCluster` of a running cluster."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    async def apply(self, obj: Object) -> None:
        path = f"{_path(obj)}?fieldManager=transom-scenario&force=true"
        self._call("PATCH", path, obj, _MERGE)

    async def delete(self, obj: Object) -> None:
        """Returns when it is gone."""
        from transom.kit.user_errors import UserError

        grace = {"gracePeriodSeconds": 0} if obj["kind"] == "Pod" else {}
        end = time.monotonic() + _GONE_SECONDS
        try:
            self._call("DELETE", _path(obj), {"propagationPolicy": "Background", **grace})
            while time.monotonic() < end:
                self._call("GET", _path(obj))
                await asyncio.sleep(0.5)
        except UserError as problem:
            if "not found" not in str(problem):
                raise

    async def control(self, method: str, path: str, body: Any = None) -> Any:
        return self._call(method, path, body)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


_PLURALS = {
    "ConfigMap": "configmaps",
    "DaemonSet": "daemonsets",
    "Deployment": "deployments",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "Namespace": "namespaces",
    "Pod": "pods",
    "Service": "services",
}


def _path(obj: Object) -> str:
    version, meta = obj["apiVersion"], obj["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    within = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{root}{within}/{_PLURALS[obj['kind']]}/{meta['name']}"


COMMAND = Command(HELP, EXAMPLES, add_scenario_arguments, run_scenario_command)
