"""What a trace knows of a cluster in addition to the network's state: its objects, its names, and
its listeners.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from transom.kit.lazy_dataclass import dataclass
from transom.network.api import DnsConfig
from transom.network.model.walk import Listening, always_listening
from transom.network.stacks import NetworkStack
from transom.windows.records import NodeTarget

Object = Mapping[str, Any]


class TraceError(Exception):
    """The request cannot be traced: the object does not exist, or it has no address."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class NameLookup(NamedTuple):
    """The answer of cluster DNS for a fully qualified name."""

    addresses: tuple[str, ...] = ()
    error: str = "NXDOMAIN"  # why there is no address


async def _no_names(_name: str) -> NameLookup:
    return NameLookup()


async def _no_node_names(_node: str, _name: str) -> Sequence[str]:
    return ()


def _no_hosts(_pod: Object, _name: str) -> list[str]:
    return []


def _nothing(_node: str) -> str:
    return ""


@dataclass(slots=True)
class Inventory:
    pod: Callable[[str, str], Object | None]
    service: Callable[[str, str], Object | None]
    node: Callable[[str], Object | None]
    pods: Callable[[], Iterable[Object]]
    services: Callable[[], Iterable[Object]]
    nodes: Callable[[], Iterable[Object]]
    slices: Callable[[str, str], Iterable[Object]]  # of a namespace's service
    policies: Callable[[str], Iterable[Object]]  # of a namespace
    pod_of: Callable[[NetworkStack], tuple[str, str] | None]  # namespace and name, of a sandbox
    dns_of: Callable[[Object], DnsConfig]  # of a pod
    lookup: Callable[[str], Awaitable[NameLookup]] = _no_names
    hosts: Callable[[Object, str], list[str]] = _no_hosts  # a pod's names that need no DNS
    # The addresses of a name for the programs of a node.
    node_lookup: Callable[[str, str], Awaitable[Sequence[str]]] = _no_node_names
    listening: Listening = always_listening
    proxy_problem: Callable[[str], str] = _nothing  # why a node's kube-proxy does not work
    target: Callable[[str], NodeTarget] = lambda _node: NodeTarget()  # a Windows node
    outside_name: str = ""  # a name with an external address
    domain: str = "cluster.local"

    def name(self, stack: NetworkStack) -> str:
        if stack.role == "external":
            return "external"
        if stack.role == "node":
            return f"node {stack.name}"
        found = self.pod_of(stack)
        return (
            f"pod {found[0]}/{found[1]}"
            if found is not None
            else f"sandbox {stack.sandbox[:13]} on {stack.node}"
        )
