"""`transom trace`: the path of a packet, hop by hop, and where it is dropped."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from transom.cli import console
from transom.cli.command import Command

if TYPE_CHECKING:
    from transom.cluster.lifecycle import ControlCall

HELP = """\
Follow a packet between two endpoints of a running cluster: name resolution, switch ports, load
balancing, address translation, tunnels, policies, and the reply. If it is dropped, the report
names the Windows limitation that explains it and the remedy.

FROM and TO are a pod (NAME, NAMESPACE/NAME, pod/NAME), a node, a service (svc/NAME,
NAMESPACE/NAME), a DNS name as seen by a pod, an address, or external: a host outside the cluster.
PORT is a number or a name (default: the first port of the service or pod, 10250 for a node, else
80). --matrix tests all flows of the Kubernetes documentation on Windows networking.

The exit code is 0 if the packet arrives, 1 if it does not, 2 for invalid arguments."""
EXAMPLES = """\
  transom trace web-0 svc/db
  transom trace default/web-0 db.default.svc.cluster.local:5432
  transom trace windows-1 svc/web
  transom trace external windows-1:30080
  transom trace web-0 8.8.8.8 --protocol icmp
  transom trace --matrix
  transom trace --matrix --output svg > flows.svg"""


def add_trace_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("origin", nargs="?", metavar="FROM", help="source")
    parser.add_argument("target", nargs="?", metavar="TO[:PORT]", help="destination")
    parser.add_argument(
        "--protocol", choices=("tcp", "udp", "icmp"), default="tcp", help="default: %(default)s"
    )
    parser.add_argument(
        "-n",
        "--namespace",
        default="default",
        metavar="NAMESPACE",
        help="namespace of names without one (default: %(default)s)",
    )
    parser.add_argument(
        "--matrix",
        action="store_true",
        help="test all documented flows",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json", "yaml", "svg"),
        default="text",
        help="output format (default: %(default)s); svg is for --matrix",
    )
    console.add_name_option(parser)


def run_trace_command(args: argparse.Namespace) -> int:
    problem = _problem(args)
    if problem:
        console.print_failure(
            problem, "for example: transom trace web-0 svc/db, or transom trace --matrix"
        )
        return 2
    from transom.cluster import lifecycle

    call = lifecycle.control_client(lifecycle.existing_cluster(args.name))
    if args.matrix:
        return _matrix(call, args.output)
    query = {
        "from": args.origin,
        "to": args.target,
        "protocol": args.protocol,
        "namespace": args.namespace,
    }
    found = call("GET", "/transom/trace?" + urlencode(query))
    if args.output != "text":
        console.print_value(found, args.output)
    else:
        _print_trace(found)
    return 0 if found["verdict"] == "delivered" else 1


def _problem(args: argparse.Namespace) -> str:
    if args.matrix:
        return "--matrix takes no FROM and TO" if args.origin else ""
    if not args.origin or not args.target:
        return "FROM and TO are required"
    return "--output svg needs --matrix" if args.output == "svg" else ""


def _print_trace(found: dict[str, Any]) -> None:
    from transom.network.trace.report import report_lines, verdict_lines

    colours = {"delivered": "green", "refused": "yellow"}
    if found["hops"]:
        console.print_table(report_lines(found))
        print()
    first, *rest = verdict_lines(found)
    print(console.colour_text(first, colours.get(found["verdict"], "red")))
    for line in rest:
        print(line)


def _matrix(call: ControlCall, output: str) -> int:
    found = call(
        "GET", "/transom/trace?" + urlencode({"matrix": "svg" if output == "svg" else "table"})
    )
    if output == "svg":
        sys.stdout.write(found["svg"])
    elif output != "text":
        console.print_value(found, output)
    else:
        print(console.colour_text(found["title"], "bold"))
        words = {True: "yes", False: "no", None: "-"}
        rows: list[tuple[str, ...]] = [("POINT", "FLOW", "PROTOCOL", "FROM", "TO", "WORKS", "WHY")]
        for flow in found["flows"]:
            why = f"{flow['limit']}: {flow['why']}" if flow["limit"] else flow["why"] or ""
            rows.append(
                (
                    flow["id"],
                    flow["flow"],
                    flow["protocol"],
                    flow["from"] or "-",
                    flow["to"] or "-",
                    words[flow["works"]],
                    why,
                )
            )
        console.print_table(rows)
    return 0


COMMAND = Command(HELP, EXAMPLES, add_trace_arguments, run_trace_command)
