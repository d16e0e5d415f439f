"""`transom trace`: the way of a packet, hop by hop, and why it does not arrive."""

from __future__ import annotations

import argparse
import sys
from typing import Any
from urllib.parse import urlencode

from transom.cli import console

HELP = """\
Follow a packet from one thing of a running cluster to another: names, switch ports, load balancing, translation of
addresses, tunnels, policies, and the answer back. If it fails, the limit of Windows that explains it and the remedy are told.

FROM and TO are a pod (NAME, NAMESPACE/NAME, pod/NAME), a node, a service (svc/NAME, NAMESPACE/NAME), a name as a pod would
resolve it, an address, or external: a host outside of the cluster. PORT is a number or a name; left out, the first port of
the service or pod, 10250 for a node, else 80. --matrix tries all flows that the document speaks of.

The exit code is 0 if it arrives, 1 if it does not, 2 if the question makes no sense."""
EXAMPLES = """\
  transom trace web-0 svc/db
  transom trace default/web-0 db.default.svc.cluster.local:5432
  transom trace windows-1 svc/web
  transom trace external windows-1:30080
  transom trace web-0 8.8.8.8 --protocol icmp
  transom trace --matrix
  transom trace --matrix --output svg > flows.svg"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("origin", nargs="?", metavar="FROM", help="where it starts")
    parser.add_argument("target", nargs="?", metavar="TO[:PORT]", help="where it is to go")
    parser.add_argument("--protocol", choices=("tcp", "udp", "icmp"), default="tcp", help="default: %(default)s")
    parser.add_argument("-n", "--namespace", default="default", metavar="NAME", help="of bare names (default: %(default)s)")
    parser.add_argument("--matrix", action="store_true", help="all supported flows of the document, with yes or no and why")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml", "svg"), default="text",
                        help="output format (default: %(default)s); svg is for --matrix")  # fmt: skip
    console.name_option(parser)


def run(args: argparse.Namespace) -> int:
    problem = _problem(args)
    if problem:
        console.failure(problem, "for example: transom trace web-0 svc/db, or transom trace --matrix")
        return 2
    from transom.cluster import lifecycle

    call = lifecycle.control(lifecycle.existing(args.name))
    if args.matrix:
        return _matrix(call, args.output)
    query = {"from": args.origin, "to": args.target, "protocol": args.protocol, "namespace": args.namespace}
    found = call("GET", "/transom/trace?" + urlencode(query))
    if args.output != "text":
        console.show(found, args.output)
    else:
        _tell(found)
    return 0 if found["verdict"] == "delivered" else 1


def _problem(args: argparse.Namespace) -> str:
    if args.matrix:
        return "--matrix takes no FROM and TO" if args.origin else ""
    if not args.origin or not args.target:
        return "from where to where?"
    return "a picture is made of --matrix" if args.output == "svg" else ""


def _tell(found: dict[str, Any]) -> None:
    from transom.network.trace.report import lines, verdict_lines

    colours = {"delivered": "green", "refused": "yellow"}
    if found["hops"]:
        console.table(lines(found))
        print()
    first, *rest = verdict_lines(found)
    print(console.paint(first, colours.get(found["verdict"], "red")))
    for line in rest:
        print(line)


def _matrix(call: Any, output: str) -> int:
    found = call("GET", "/transom/trace?" + urlencode({"matrix": "svg" if output == "svg" else "table"}))
    if output == "svg":
        sys.stdout.write(found["svg"])
    elif output != "text":
        console.show(found, output)
    else:
        print(console.paint(found["title"], "bold"))
        words = {True: "yes", False: "no", None: "-"}
        rows: list[tuple[str, ...]] = [("STATEMENT", "FLOW", "PROTOCOL", "FROM", "TO", "WORKS", "WHY")]
        for flow in found["flows"]:
            why = f"{flow['limit']}: {flow['why']}" if flow["limit"] else flow["why"] or ""
            rows.append((flow["id"], flow["flow"], flow["protocol"], flow["from"] or "-", flow["to"] or "-",
                         words[flow["works"]], why))  # fmt: skip
        console.table(rows)
    return 0
