"""`transom status`: show the status of a cluster."""

from __future__ import annotations

import argparse
from typing import Any

from transom.cli import console
from transom.cli.command import Command
from transom.node.settings import name_option

_MOST_RELAYS = 12
HELP = """\
Show whether a cluster is running, its address, its version and its number of objects.

The exit code is 0 if the cluster (with --all: every cluster) is running and ready, else 1."""
EXAMPLES = """\
  transom status
  transom status --name blue --output json
  transom status --all"""


def add_status_arguments(parser: argparse.ArgumentParser) -> None:
    console.add_cluster_options(parser, "all your clusters")
    console.add_output_option(parser)


def run_status_command(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle
    from transom.cluster.config import known_clusters

    names = known_clusters() if args.all else [args.name]
    reports = [lifecycle.cluster_status_by_name(name) for name in names]
    if args.output != "text":
        console.print_value(reports if args.all else reports[0], args.output)
    elif args.all:
        print_status_table(reports)
    else:
        _page(reports[0])
    return 0 if all(report["ready"] for report in reports) else 1


def print_status_table(reports: list[dict[str, Any]]) -> None:
    rows = [("NAME", "STATE", "VERSION", "UPTIME", "URL")]
    rows += [
        (
            r["name"],
            _state(r),
            "-" if _state(r) == _DAMAGED else r["version"],
            console.format_age(r["uptimeSeconds"]),
            r["url"] or "-",
        )
        for r in reports
    ]
    console.print_table(rows)


def _page(report: dict[str, Any]) -> None:
    state = _state(report)
    lines = {
        "cluster": console.colour_text(report["name"], "bold"),
        "state": console.colour_text(state, "green" if report["ready"] else "yellow"),
        "url": report["url"],
        "version": "" if state == _DAMAGED else report["version"],
        "nodes": "" if report["nodes"] else "none (control plane only)",
        "uptime": console.format_age(report["uptimeSeconds"]) if report["pid"] else "",
        "pid": str(report["pid"] or ""),
        "objects": ", ".join(
            f"{count} {kind}" for kind, count in (report["objects"] or {}).items()
        ),
        "kubeconfig": f"{report['kubeconfig']}, context {report['context']}"
        if report["pid"]
        else "",
        "state dir": report["stateDir"],
        "failing": "; ".join(report["failedChecks"]),
        "store": _store(report["store"], name_option(report["name"])),
        "problem": report.get("problem", ""),
    }
    for label, value in lines.items():
        if value:
            print(f"{label + ':':<12}{value}")
    _process_lines(report.get("servers"))
    relay_lines(report)
    if state == _DAMAGED:
        option = name_option(report["name"])
        print(f"repair the file, or delete the cluster with: transom delete{option}")
    elif report["state"] == "stopped":
        print(f"start it with: transom up{name_option(report['name'])}")


def _process_lines(found: dict[str, Any] | None) -> None:
    """The processes of a cluster with several API servers."""
    if found is None:
        return
    for one in (*found["servers"], *found["etcd"], *([found["nodes"]] if found["nodes"] else ())):
        state = f"process {one['pid']}" if one["pid"] else "not running"
        if one.get("ready") is False:
            state += ", not ready"
        if "connections" in one:
            state += f", {one['address']}, {one['connections']} connections"
        if one["restarts"]:
            state += f", restarted {one['restarts']} times"
        print(f"{one['name'] + ':':<12}{state}")


_LOW_SPACE = 64 << 20
_DAMAGED = "damaged"


def _store(store: dict[str, Any] | None, option: str) -> str:
    """Problems of the data on disk; nothing while it is healthy."""
    if store is None:
        return ""
    problems = []
    if store["quarantined"]:
        count = len(store["quarantined"])
        problems.append(
            f"{count} corrupt record{'s' if count > 1 else ''} in quarantine, see transom "
            f"doctor{option}"
        )
    if store["readOnly"]:
        problems.append("the disk is read-only")
    if store["freeBytes"] < _LOW_SPACE:
        problems.append(f"{store['freeBytes'] / (1 << 20):.1f} MiB left on the disk")
    if store["loopLagSeconds"] > 1:
        problems.append(f"the event loop is {store['loopLagSeconds']:.1f} s late")
    return "; ".join(problems)


def relay_lines(report: dict[str, Any]) -> None:
    """The addresses of node ports and load balancers on this machine."""
    found = report.get("relays") or []
    for way in found[:_MOST_RELAYS]:
        print(
            f"{'reach:':<12}{way['service']} {way['port']}/{way['protocol']} at "
            f"{way['outside']} ({way['inside']})"
        )
    if len(found) > _MOST_RELAYS:
        print(
            f"{'':<12}and {len(found) - _MOST_RELAYS} more: transom "
            f"status{name_option(report['name'])} --output json"
        )


def _state(report: dict[str, Any]) -> str:
    state: str = report["state"]
    if report["state"] == "stopped" and report.get("problem"):
        return _DAMAGED
    return "running, not ready" if state == "running" and not report["ready"] else state


COMMAND = Command(HELP, EXAMPLES, add_status_arguments, run_status_command)
