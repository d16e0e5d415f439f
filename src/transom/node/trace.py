"""What `transom trace` reads from a running cluster: the path of a packet through its network, and
the matrix of flows.

The walk reads the fabric, whichever data plane carries the traffic. Objects come from the informers
of the network's agents; pods and nodes are fetched by name.
"""

from __future__ import annotations

import ipaddress
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from transom.client.api import is_not_found
from transom.client.resources import ENDPOINT_SLICES, ENDPOINTS, NETWORK_POLICIES, NODES, PODS
from transom.kit import dnswire as wire
from transom.kit.clock import Clock
from transom.kit.ip_addresses import is_ip_address
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.network.api import DnsConfig
from transom.network.model.dataplane import ModelDataplane
from transom.network.model.packet_trip import NetworkState
from transom.network.resolver import addresses_in
from transom.network.stacks import NetworkStack
from transom.network.trace import matrix, picture
from transom.network.trace.inventory import Inventory, NameLookup, TraceError
from transom.network.trace.places import split_target
from transom.network.trace.run import run_trace
from transom.node.network_settings import OUTSIDE6, OUTSIDE_NAME
from transom.windows import releases
from transom.windows.records import NodeTarget

if TYPE_CHECKING:
    from transom.client.api import ApiClient
    from transom.node.cluster_network import ClusterNetwork
    from transom.node.node import Node
    from transom.runtime.api import Sandbox

PROTOCOLS: Final = ("tcp", "udp", "icmp")
_OBJECT: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_SERVICE_NAME: Final = "kubernetes.io/service-name"
_RCODES: Final = {wire.NXDOMAIN: "NXDOMAIN", wire.SERVFAIL: "SERVFAIL", wire.REFUSED: "REFUSED"}
Respond = Callable[[bytes, str], Awaitable[bytes | None]]


class Tracer:
    """`respond` is cluster DNS, `nodes` are the nodes of the cluster."""

    def __init__(
        self,
        network: ClusterNetwork,
        client: ApiClient,
        clock: Clock,
        nodes: Callable[[], Iterable[Node]],
        respond: Respond | None = None,
        *,
        release: str = "1.20",
    ) -> None:
        self._network = network
        self._client = client
        self._nodes = nodes
        self._respond = respond
        self._release = releases.parse_release_version(release)
        dataplane = network.dataplane
        self._world = (
            dataplane.world
            if isinstance(dataplane, ModelDataplane)
            else NetworkState(network.fabric, clock.monotonic, random.Random(0))
        )

    async def answer(self, query: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Answers GET /transom/trace?from=&to=&protocol=&namespace=, or ?matrix=. Raises UserError
        if it cannot be traced.
        """
        requested = {name: values[-1] for name, values in query.items() if values}
        if "matrix" in requested:
            return await self._matrix(requested["matrix"] == "svg")
        origin, target = requested.get("from", ""), requested.get("to", "")
        protocol: Any = requested.get("protocol", "tcp")
        if not origin or not target or protocol not in PROTOCOLS:
            raise UserError(
                "a trace takes from, to and one of the protocols tcp, udp, icmp", code=EXIT_USAGE
            )
        namespace = requested.get("namespace") or "default"
        inventory = self._inventory(await self._named(origin, split_target(target)[0], namespace))
        try:
            return (
                await run_trace(self._world, inventory, origin, target, protocol, namespace)
            ).document()
        except TraceError as problem:
            raise UserError(problem.message, problem.hint, EXIT_USAGE) from problem

    async def _matrix(self, drawn: bool) -> dict[str, Any]:
        found = {
            PODS: (await self._client.list(PODS)).items,
            NODES: (await self._client.list(NODES)).items,
        }
        inventory = self._inventory(found)
        settings = self._network.shared.settings
        results = await matrix.run_matrix(
            self._world,
            inventory,
            matrix.find_matrix_places(inventory, OUTSIDE6 if settings.dual_stack else ""),
        )
        title = f"Network flows with Windows nodes, {settings.mode} ({settings.chosen_plugin})"
        out: dict[str, Any] = {
            "title": title,
            "mode": settings.mode,
            "flows": [r.document() for r in results],
        }
        return {**out, "svg": picture.trace_svg(results, title)} if drawn else out

    # ---- objects ----

    async def _named(self, origin: str, target: str, namespace: str) -> dict[Any, list[Object]]:
        """The pods and nodes that the arguments may refer to."""
        pods: list[Object] = []
        nodes: list[Object] = (
            list((await self._client.list(NODES)).items) if origin == "external" else []
        )
        for text in (origin, target):
            if is_ip_address(text) or text == "external":
                continue
            parts = text.split("/")
            kind = (
                parts[0]
                if len(parts) > 1 and parts[0] in ("pod", "po", "pods", "node", "no", "nodes")
                else ""
            )
            rest = parts[1:] if kind else parts
            if not kind.startswith("no"):
                # A bare target may also be in the origin's namespace.
                spaces = (
                    [rest[0]]
                    if len(rest) > 1
                    else [namespace, *(p["metadata"]["namespace"] for p in pods)]
                )
                for space in dict.fromkeys(spaces):
                    pods += await self._get(PODS, space, rest[-1])
            if not kind.startswith("po") and len(rest) == 1:
                nodes += await self._get(NODES, "", rest[0])
        return {PODS: pods, NODES: nodes}

    async def _get(self, resource: Any, namespace: str, name: str) -> list[Object]:
        if not _OBJECT.fullmatch(name) or not _OBJECT.fullmatch(namespace or "x"):
            return []
        try:
            return [await self._client.get(resource, namespace, name)]
        except ApiError as problem:
            if is_not_found(problem):
                return []
            raise

    def _inventory(self, found: dict[Any, list[Object]]) -> Inventory:
        network, informers = self._network, self._network.informers
        pods = {(p["metadata"]["namespace"], p["metadata"]["name"]): p for p in found[PODS]}
        nodes = {n["metadata"]["name"]: n for n in found[NODES]}
        named: dict[str, dict[str, tuple[str, str]]] = {}
        nodes_by_name = {node.spec.name: node for node in self._nodes()}

        def pod_of(stack: NetworkStack) -> tuple[str, str] | None:
            if stack.node not in named:
                node = nodes_by_name.get(stack.node)
                sandboxes = node.runtime.sandboxes() if node is not None else ()
                named[stack.node] = {s.id: (s.config.namespace, s.config.name) for s in sandboxes}
            return named[stack.node].get(stack.sandbox)

        def sandbox_of(pod: Mapping[str, Any]) -> tuple[Node, Sandbox] | None:
            node = nodes_by_name.get(pod["spec"].get("nodeName", ""))
            mine = (pod["metadata"]["namespace"], pod["metadata"]["name"])
            for sandbox in node.runtime.sandboxes() if node is not None else ():
                named = sandbox.config.namespace, sandbox.config.name
                if node is not None and named == mine and sandbox.state == "ready":
                    return node, sandbox
            return None

        def dns_of(pod: Mapping[str, Any]) -> DnsConfig:
            found = sandbox_of(pod)
            return found[1].config.dns if found is not None else DnsConfig()

        def hosts(pod: Mapping[str, Any], name: str) -> list[str]:
            found = sandbox_of(pod)
            return found[0].hosts_addresses(found[1].id, name) if found is not None else []

        async def node_lookup(node: str, name: str) -> Sequence[str]:
            found = nodes_by_name.get(node)
            return await found.resolve(name) if found is not None else ()

        def listening(stack: NetworkStack, address: str, port: int, protocol: str) -> bool:
            node = nodes_by_name.get(stack.node)
            loopback = ipaddress.ip_address(address).is_loopback
            requested = address, port, protocol
            if loopback and node is not None and node.listens_inside(stack.sandbox, *requested):
                return True
            return network.dataplane.listening(stack, *requested)

        policies = informers(NETWORK_POLICIES) if network.shared.settings.policy else None
        return Inventory(
            pod=lambda space, name: pods.get((space, name)) or informers(PODS).get(space, name),
            service=network.services.get,
            node=nodes.get,
            pods=pods.values,
            services=network.services.list,
            nodes=nodes.values,
            slices=self._slices,
            policies=lambda space: policies.list(space) if policies is not None else (),
            pod_of=pod_of,
            dns_of=dns_of,
            lookup=self._lookup,
            hosts=hosts,
            node_lookup=node_lookup,
            listening=listening,
            proxy_problem=network.proxy_problem,
            target=lambda node: self._target(nodes_by_name.get(node)),
            outside_name=OUTSIDE_NAME,
        )

    def _slices(self, namespace: str, name: str) -> list[Object]:
        found = [
            s
            for s in self._network.informers(ENDPOINT_SLICES).list(namespace)
            if (s["metadata"].get("labels") or {}).get(_SERVICE_NAME) == name
        ]
        if found:
            return found
        one = self._network.informers(ENDPOINTS).get(namespace, name)  # without EndpointSlices
        return [_as_slice(subset) for subset in (one or {}).get("subsets") or ()]

    def _target(self, node: Node | None) -> NodeTarget:
        settings = self._network.shared.settings
        features = frozenset({"dsr", "WinDSR"} if settings.dsr else ())
        mode: Any = settings.mode
        build = node.spec.build if node is not None else None
        return NodeTarget(self._release, build or None, None, mode, features)

    # ---- names ----

    async def _lookup(self, name: str) -> NameLookup:
        if self._respond is None:
            return NameLookup((), "no DNS server runs")
        found: list[str] = []
        result = "no answer"
        for kind in (wire.A, wire.AAAA):
            try:
                question = wire.encode_query(1, wire.encode_name(name), kind)
            except ValueError:
                return NameLookup((), "no domain name")
            reply = await self._respond(question, "")
            if reply is None:
                return NameLookup((), "no answer")
            message = wire.parse_dns_message(reply)
            found += addresses_in(message)
            result = _RCODES.get(message.rcode, "no address")
            if message.rcode:
                break
        return NameLookup(tuple(found), result)


def _as_slice(subset: Object) -> Object:
    return {
        "ports": subset.get("ports") or [],
        "endpoints": [
            {"addresses": [a["ip"]], "nodeName": a.get("nodeName", "")}
            for a in subset.get("addresses") or ()
        ],
    }
