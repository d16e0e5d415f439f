"""`transom status`: what there is to say about a cluster."""

from __future__ import annotations

import argparse
from typing import Any

from transom.cli import console
from transom.cluster.config import DEFAULT_NAME

_MOST_RELAYS = 12
HELP = """\
Show whether a cluster runs, where it listens, what version it is and how many objects it holds.

The exit code is 0 if the cluster (with --all: every cluster) runs and is ready, else 1."""
EXAMPLES = """\
  transom status
  transom status --name blue --output json
  transom status --all"""


def arguments(parser: argparse.ArgumentParser) -> None:
    console.name_option(parser)
    parser.add_argument("--all", action="store_true", help="every cluster of yours")
    console.output_option(parser)


def run(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle
    from transom.cluster.config import known_clusters

    names = known_clusters() if args.all else [args.name]
    reports = [lifecycle.status(lifecycle.existing(name)) for name in names]
    if args.output != "text":
        console.show(reports if args.all else reports[0], args.output)
    elif args.all:
        _table(reports)
    else:
        _page(reports[0])
    return 0 if all(report["ready"] for report in reports) else 1


def _table(reports: list[dict[str, Any]]) -> None:
    rows = [("NAME", "STATE", "VERSION", "UPTIME", "URL")]
    rows += [(r["name"], _state(r), r["version"], console.duration(r["uptimeSeconds"]), r["url"]) for r in reports]
    console.table(rows)


def _page(report: dict[str, Any]) -> None:
    state = _state(report)
    lines = {
        "cluster": console.paint(report["name"], "bold"),
        "state": console.paint(state, "green" if report["ready"] else "yellow"),
        "url": report["url"],
        "version": report["version"],
        "nodes": "" if report["nodes"] else "none (control plane alone)",
        "uptime": console.duration(report["uptimeSeconds"]) if report["pid"] else "",
        "pid": str(report["pid"] or ""),
        "objects": ", ".join(f"{count} {kind}" for kind, count in (report["objects"] or {}).items()),
        "kubeconfig": f"{report['kubeconfig']}, context {report['context']}" if report["pid"] else "",
        "state dir": report["stateDir"],
        "problem": report.get("problem", ""),
    }
    for label, value in lines.items():
        if value:
            print(f"{label + ':':<12}{value}")
    relays(report)
    if report["state"] == "stopped":
        option = "" if report["name"] == DEFAULT_NAME else f" --name {report['name']}"
        print(f"start it with: transom up{option}")


def relays(report: dict[str, Any]) -> None:
    """Where this machine reaches node ports and load balancers."""
    found = report.get("relays") or []
    for way in found[:_MOST_RELAYS]:
        print(f"{'reach:':<12}{way['service']} {way['port']}/{way['protocol']} at {way['outside']} ({way['inside']})")
    if len(found) > _MOST_RELAYS:
        print(f"{'':<12}and {len(found) - _MOST_RELAYS} more: transom status --output json")


def _state(report: dict[str, Any]) -> str:
    state: str = report["state"]
    return "running, not ready" if state == "running" and not report["ready"] else state
