"""hnsdiag: shows the objects of the machine's host networking service."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from transom.machines.windows.hns import HostNetworkService, rest
from transom.userland.process import Process

_PROTOCOLS: Final = {6: "TCP", 17: "UDP", 132: "SCTP", 1: "ICMP"}


def _table(
    process: Process, columns: Sequence[tuple[str, int]], rows: Sequence[Sequence[str]]
) -> None:
    process.print_line("".join(f"{name:<{width}}" for name, width in columns).rstrip())
    process.print_line("".join(f"{'-' * (width - 2):<{width}}" for _, width in columns).rstrip())
    for values in rows:
        process.print_line(
            "".join(
                f"{value:<{width}}" for value, (_, width) in zip(values, columns, strict=True)
            ).rstrip(),
        )
    process.print_line()


def _networks(process: Process, hns: HostNetworkService) -> None:
    columns = (("ID", 38), ("NAME", 26), ("TYPE", 14))
    _table(
        process,
        columns,
        [(n["ID"], n.get("Name", ""), n.get("Type", "NAT")) for n in hns.networks.values()],
    )


def _endpoints(process: Process, hns: HostNetworkService) -> None:
    columns = (("ID", 38), ("IP", 18), ("Virtual Network", 38), ("NAME", 30))
    rows = [
        (
            e["ID"],
            next((a["IpAddress"] for a in e.get("IpConfigurations", ())), ""),
            e.get("HostComputeNetwork", ""),
            e.get("Name", ""),
        )
        for e in hns.endpoints.values()
    ]
    _table(process, columns, rows)


def _namespaces(process: Process, hns: HostNetworkService) -> None:
    columns = (("ID", 38), ("Type", 14), ("Endpoints", 38))
    rows = []
    for namespace in hns.namespaces.values():
        ends = [
            r["Data"]["ID"] for r in namespace.get("Resources", ()) if r.get("Type") == "Endpoint"
        ]
        rows.append((namespace["ID"], namespace.get("Type", ""), ", ".join(ends)))
    _table(process, columns, rows)


def _balancers(process: Process, hns: HostNetworkService) -> None:
    columns = (("ID", 38), ("Virtual IPs", 18), ("Direct IP IDs", 38))
    rows = []
    for balancer in hns.loadbalancers.values():
        ports = [
            (
                f"{_PROTOCOLS.get(p.get('Protocol'), p.get('Protocol'))} "
                f"{p.get('ExternalPort')}->{p.get('InternalPort')}"
            )
            for p in balancer.get("PortMappings", ())
        ]
        vips = ", ".join(balancer.get("FrontendVIPs", ())) or "0.0.0.0"
        ends = ", ".join(balancer.get("HostComputeEndpoints", ()))
        rows.append((balancer["ID"], vips, f"{ends} [{', '.join(ports)}]"))
    _table(process, columns, rows)


_LISTS: Final[
    Mapping[
        str,
        tuple[
            str,
            Callable[[Process, HostNetworkService], None],
            Callable[[HostNetworkService], Mapping[str, Any]],
        ],
    ]
] = {
    "networks": ("Networks", _networks, lambda hns: hns.networks),
    "endpoints": ("Endpoints", _endpoints, lambda hns: hns.endpoints),
    "namespaces": ("Namespaces", _namespaces, lambda hns: hns.namespaces),
    "loadbalancers": ("Load Balancers", _balancers, lambda hns: hns.loadbalancers),
}


def hnsdiag(process: Process) -> int:
    node = process.context.node
    assert node is not None and node.windows is not None, "only Windows nodes have this program"
    words = [word.lower() for word in process.argv[1:]]
    plain = [word for word in words if not word.startswith("-")]
    hns = node.windows.hns
    if len(plain) >= 2 and plain[0] == "delete" and len(plain) >= 3:
        return _delete(process, hns, plain[1], process.argv[1:][words.index(plain[2])])
    if (
        not plain
        or plain[0] != "list"
        or len(plain) > 2
        or (len(plain) == 2 and plain[1] not in (*_LISTS, "all"))
    ):
        process.print_line(
            "Usage: hnsdiag list <networks|endpoints|namespaces|loadbalancers|all> [-d]\r\n"
            "       hnsdiag delete <networks|endpoints|namespaces|loadbalancers> <id>",
        )
        return 1
    wanted = list(_LISTS) if len(plain) == 1 or plain[1] == "all" else [plain[1]]
    for name in wanted:
        title, show, read = _LISTS[name]
        if "-d" in words:
            for found in read(hns).values():
                process.print_line(json.dumps(found, indent=4).replace("\n", "\r\n"))
            continue
        if len(wanted) > 1:
            process.print_line(f"{title}:")
        show(process, hns)
    return 0


def _delete(process: Process, hns: HostNetworkService, kind: str, key: str) -> int:
    path = "policylists" if kind == "loadbalancers" else kind
    if kind not in _LISTS:
        process.print_line(f"Unknown type {kind}")
        return 1
    answer = rest.call_hns(hns, "DELETE", f"/{path}/{key}", None)
    if not answer["Success"]:
        process.print_line(f"Error: {answer['Error']}")
        return 1
    return 0
