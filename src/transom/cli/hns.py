"""`transom hns`: the state of a Windows node's host networking service, and fault injection."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from transom.cli import console
from transom.cli.command import Command
from transom.windows.hns_wording import (
    PROTOCOLS,
    balancer_flags,
    endpoint_addresses,
    endpoint_state,
)

HELP = """\
Inspect the host networking service (HNS) of a Windows node, and inject faults.

networks, endpoints, loadbalancers, namespaces, routes, policies and adapters list the HNS
objects; faults lists the faults, and whether they are on. fault NAME turns a fault on or off;
restart restarts the service."""
EXAMPLES = """\
  transom hns windows-1 networks
  transom hns windows-1 endpoints --output json
  transom hns windows-1 loadbalancers
  transom hns windows-1 fault leak-endpoints         on; off again: ... fault leak-endpoints off
  transom hns windows-1 restart"""

Rows = list[tuple[str, ...]]


def add_hns_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="a Windows node")
    verbs = (*TABLES, "fault", "restart")
    parser.add_argument("verb", choices=verbs, metavar="VERB", help=", ".join(verbs))
    parser.add_argument(
        "rest", nargs="*", metavar="FAULT", help="for fault: its name, and `on` (default) or `off`"
    )
    console.add_name_option(parser)
    console.add_output_option(parser)


def run_hns_command(args: argparse.Namespace) -> int:
    from transom.cluster import lifecycle

    call = lifecycle.control_client(lifecycle.existing_cluster(args.name))
    root = f"/transom/nodes/{console.node_path(args.node, args.name)}/hns"
    if args.verb == "fault":
        return _fault(call, root, args)
    if args.rest:
        raise _misused(
            f"{args.verb} takes no more arguments", f"transom hns {args.node} {args.verb}"
        )
    if args.verb == "restart":
        call("POST", f"{root}/restart")
        if args.output != "text":
            console.print_value({"node": args.node, "restarted": True}, args.output)
        else:
            print(f"node/{args.node}: host networking service restarted")
        return 0
    items = call("GET", f"{root}/{args.verb}")["items"]
    if args.output != "text":
        console.print_value(items, args.output)
    else:
        console.print_table(TABLES[args.verb](items))
    return 0


def _fault(call: Callable[..., Any], root: str, args: argparse.Namespace) -> int:
    match args.rest:
        case [name] | [name, "on"]:
            state = "on"
        case [name, "off"]:
            state = "off"
        case _:
            raise _misused(
                "FAULT is required",
                f"for example: transom hns {args.node} fault leak-endpoints on",
            )
    shown = call("POST", f"{root}/faults/{quote(name, safe='')}/{state}")
    if args.output != "text":
        console.print_value(shown, args.output)
    else:
        print(f"node/{args.node}: {name} {state}")
    return 0


def _misused(message: str, hint: str) -> Exception:
    from transom.kit.user_errors import EXIT_USAGE, UserError

    return UserError(message, hint, EXIT_USAGE)


# ---- tables ----


def _networks(items: list[Any]) -> Rows:
    rows: Rows = [
        (
            "NAME",
            "TYPE",
            "SUBNET",
            "GATEWAY",
            "MANAGEMENT IP",
            "ADAPTER",
            "ENDPOINTS",
            "FLAGS",
            "ID",
        )
    ]
    for n in items:
        subnets = n["Subnets"]
        rows.append(
            (
                n["Name"],
                n["Type"],
                ",".join(s["AddressPrefix"] for s in subnets) or "-",
                ",".join(s["GatewayAddress"] for s in subnets) or "-",
                n.get("ManagementIP", "-"),
                n.get("NetworkAdapterName", "-"),
                str(n["CurrentEndpointCount"]),
                str(n["Flags"]),
                n["ID"],
            )
        )
    return rows


def _endpoints(items: list[Any]) -> Rows:
    rows: Rows = [("NAME", "ADDRESS", "MAC", "NETWORK", "STATE", "ATTACHED TO", "GATEWAY", "ID")]
    for e in items:
        whose = e["AttachedTo"]
        rows.append(
            (
                e["Name"],
                endpoint_addresses(e),
                e["MacAddress"] or "-",
                e["VirtualNetworkName"],
                endpoint_state(e),
                f"{whose['Type']} {whose['ID'][:12]}" if whose else "-",
                e.get("GatewayAddress", "-"),
                e["ID"],
            )
        )
    return rows


def _loadbalancers(items: list[Any]) -> Rows:
    rows: Rows = [("VIP", "PROTOCOL", "PORT", "TARGET", "ENDPOINTS", "SOURCE VIP", "FLAGS", "ID")]
    for b in items:
        for m in b["PortMappings"]:
            rows.append(
                (
                    ",".join(b.get("FrontendVIPs", ())) or "*",
                    PROTOCOLS.get(m["Protocol"], str(m["Protocol"])),
                    str(m["ExternalPort"]),
                    str(m["InternalPort"]),
                    str(len(b["HostComputeEndpoints"])),
                    b.get("SourceVIP", "-"),
                    ",".join(balancer_flags(b, m)) or "-",
                    b["ID"],
                )
            )
    return rows


def _namespaces(items: list[Any]) -> Rows:
    rows: Rows = [("ID", "COMPARTMENT", "TYPE", "ENDPOINTS", "CONTAINERS")]
    for n in items:
        inside: dict[str, list[str]] = {"Endpoint": [], "Container": []}
        for resource in n.get("Resources", ()):
            inside[resource["Type"]].append(resource["Data"]["ID"])
        rows.append(
            (
                n["ID"],
                str(n["NamespaceId"]),
                n["Type"],
                ",".join(inside["Endpoint"]) or "-",
                ",".join(inside["Container"]) or "-",
            )
        )
    return rows


def _routes(items: list[Any]) -> Rows:
    rows: Rows = [("DESTINATION", "NEXT HOP", "ENCAP", "ENDPOINTS", "ID")]
    for r in items:
        for s in r["Setting"]:
            rows.append(
                (
                    s["DestinationPrefix"],
                    s.get("NextHop") or "-",
                    "yes" if s.get("NeedEncap") else "no",
                    str(len(r["HostComputeEndpoints"])),
                    r["ID"],
                )
            )
    return rows


def _policies(items: list[Any]) -> Rows:
    rows: Rows = [("OWNER", "NAME", "TYPE", "SETTINGS")]
    for p in items:
        settings = json.dumps(p["Settings"], separators=(",", ":")) if p.get("Settings") else "-"
        rows.append((p["Owner"], p["Name"], p["Type"], settings))
    return rows


def _adapters(items: list[Any]) -> Rows:
    rows: Rows = [("NAME", "INDEX", "KIND", "MAC", "ADDRESS", "GATEWAY", "COMPARTMENT")]
    for a in items:
        kind = "bound to a switch" if a["kind"] == "physical" and a["switch"] else a["kind"]
        address, gateway = a["address"] or "-", a["gateway"] or "-"
        rows.append(
            (a["name"], str(a["index"]), kind, a["mac"], address, gateway, str(a["compartment"]))
        )
    return rows


def _faults(items: list[Any]) -> Rows:
    return [("FAULT", "STATE"), *((f["Name"], "on" if f["On"] else "off") for f in items)]


TABLES: dict[str, Callable[[list[Any]], Rows]] = {
    "networks": _networks,
    "endpoints": _endpoints,
    "loadbalancers": _loadbalancers,
    "namespaces": _namespaces,
    "routes": _routes,
    "policies": _policies,
    "adapters": _adapters,
    "faults": _faults,
}


COMMAND = Command(HELP, EXAMPLES, add_hns_arguments, run_hns_command)
