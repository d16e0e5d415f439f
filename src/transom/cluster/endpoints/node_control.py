"""The endpoints of the API server below /transom that `transom node` and `transom ps` use.

They are authorized like any other non-resource path, so only the cluster's admin may use them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from transom.cloud import control as cloud_control
from transom.cluster.config import ClusterConfig, scheduler_config_file
from transom.cluster.options import parse_feature_gates
from transom.http.messages import Answer, HttpRequest, HttpResponse
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.kubelet.config import DEFAULT_PRIORITY_CLASS
from transom.node.cluster_access import ControlPlaneFacts
from transom.node.inspect_hns import answer_hns
from transom.node.machine import windows_machine
from transom.node.network_settings import NetworkSettings
from transom.node.node import Node
from transom.node.pool import NodePool, UnusableNode
from transom.node.relay import RelayLine
from transom.node.spec import NodeSpec, complete_specs, kubelet_version, specs_from_rows
from transom.node.support_warnings import node_warnings

if TYPE_CHECKING:
    from transom.node import inspect, login, network_checks, trace
    from transom.node.trace import Tracer
else:
    inspect = lazy_import("transom.node.inspect")
    network_checks = lazy_import("transom.node.network_checks")
    trace = lazy_import("transom.node.trace")
    login = lazy_import("transom.node.login")

ROOT = "/transom"
_T = TypeVar("_T")
_ROW = re.compile(r"^nodes\[\d+\]: ")  # the place in a cluster file; a command line has none


def _make_tracer(pool: NodePool) -> Tracer:
    cluster, dns = pool.cluster, pool.dns
    return trace.Tracer(
        cluster.network,
        cluster.admin,
        cluster.clock,
        pool.nodes,
        dns.server.respond if dns is not None else None,
        release=cluster.settings.release,
    )


class ControlHandler:
    def __init__(
        self, config: ClusterConfig, pool: NodePool, control_plane: ControlPlaneFacts
    ) -> None:
        self._config = config
        self._pool = pool
        self._control_plane = control_plane
        self._tracer: Tracer | None = None

    async def __call__(self, request: HttpRequest) -> Answer:
        parts = request.path.removeprefix(ROOT).strip("/").split("/")
        try:
            match parts:
                case ["nodes", name, *rest]:
                    answer = await self._node_request(request, name, rest)
                case _:
                    answer = await self._cluster_request(request, parts)
        except UserError as problem:
            return _json(
                400, {"message": problem.message, "hint": problem.hint, "code": problem.code}
            )
        return answer or _json(
            404, {"message": f"there is no {request.method} {request.path}", "hint": ""}
        )

    async def _node_request(
        self, request: HttpRequest, name: str, parts: Sequence[str]
    ) -> Answer | None:
        """The answer to a request below `nodes/NAME`; None if there is no such request."""
        match request.method, parts:
            case "DELETE", []:
                await self._pool.delete(name)
                return _json(200, {"name": name})
            case "POST", ["start" | "stop" | "shutdown" | "reboot" as verb]:
                verbs: dict[str, Callable[[str], Awaitable[None]]] = {
                    "start": self._pool.start,
                    "stop": self._pool.stop,
                    "shutdown": self._pool.shut_down,
                    "reboot": self._pool.reboot,
                }
                await verbs[verb](name)
                return _json(200, self._node(self._pool.node(name)))
            case "POST", ["set"]:
                self._pool.set(name, _body(request, dict))
                return _json(200, self._node(self._pool.node(name)))
            case method, ["hns", *rest]:
                return _json(200, self._hns(name, method, rest))
            case "GET" | "POST", ["exec"]:
                return login.serve_login(self._pool.node(name), request)
            case "GET", ["logs"]:
                return _json(200, await inspect.node_logs(self._pool, name))
        return None

    async def _cluster_request(self, request: HttpRequest, parts: Sequence[str]) -> Answer | None:
        match request.method, parts:
            case "GET", ["nodes"]:
                found = [self._node(node) for node in self._pool.nodes()]
                found += [self._unusable(one) for one in self._pool.unusable()]
                return _json(200, {"items": found})
            case "POST", ["nodes"]:
                return await self._add(request)
            case "GET", ["inside"]:
                return _json(200, await inspect.inspect_nodes(self._pool, self._control_plane))
            case "GET", ["scheduler"]:
                path = scheduler_config_file(self._config)
                text = path.read_text() if path.exists() else ""
                gates = parse_feature_gates(self._config.feature_gates, self._config.release)
                return _json(200, {"configuration": text, "featureGates": gates})
            case "GET", ["trace"]:
                return _json(200, await self._trace(request.query))
            case "GET", ["relays"]:
                return _json(200, self._relays())
            case "GET" | "POST", ["cloud", *rest]:
                action, body = (
                    ("list", {})
                    if request.method == "GET"
                    else ("/".join(rest), _body(request, dict))
                )
                return _json(
                    200,
                    await cloud_control.answer_cloud_request(
                        self._pool.cluster.cloud, self._pool.names(), action, body
                    ),
                )
            case "GET", ["containers"]:
                return _json(
                    200, {"items": [c for m in self._pool.nodes() for c in _containers(m)]}
                )
        return None

    async def _trace(self, query: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        if self._tracer is None:
            self._tracer = _make_tracer(self._pool)
        return await self._tracer.answer(query)

    def _hns(self, name: str, method: str, parts: Sequence[str]) -> dict[str, Any]:
        node = self._pool.node(name)
        # starts or stops the agents of the node as needed
        self._pool.cluster.network.fabric.refresh_node(name)
        hns = windows_machine(node.machine).hns if node.spec.windows else None
        return answer_hns(name, hns, method, parts)

    async def _add(self, request: HttpRequest) -> Answer:
        rows = _body(request, list)
        try:
            wanted = specs_from_rows(self._config, rows)
        except UserError as problem:  # the values are those of the command line
            message = _ROW.sub("", problem.message)
            raise UserError(message, problem.hint, EXIT_USAGE) from problem
        added = complete_specs(
            self._config, [replace(spec, number=0) for spec in wanted], self._pool.numbers()
        )
        warnings = self._network_warnings(added)
        self._pool.add(added)
        return _json(
            201,
            {
                "items": [self._node(self._pool.node(spec.name)) for spec in added],
                "warnings": warnings + node_warnings(self._config, added),
            },
        )

    def _network_warnings(self, added: Sequence[NodeSpec]) -> list[str]:
        """Checks the network of new nodes; the default network works with all nodes."""
        config = self._config
        if config.network == NetworkSettings():
            return []
        gates = parse_feature_gates(config.feature_gates, config.release)
        before = [node.spec for node in self._pool.nodes()]
        known = network_checks.check_network(config, gates, before)
        found = network_checks.check_network(config, gates, [*before, *added])
        return [text for text in found if text not in known]

    def _relays(self) -> dict[str, Any]:
        """How this machine reaches services, and how pods reach this machine's network."""
        network = self._pool.cluster.network
        items = [] if network.relay is None else network.relay.ways()
        items += [
            RelayLine("class transom", scheme, "TCP", "ingress controller", address)
            for scheme, address in self._pool.ingress_ports()
        ]
        return {
            "items": [way._asdict() for way in items],
            "outgoing": [way._asdict() for way in network.outgoing.ways],
        }

    def _node(self, node: Node) -> dict[str, Any]:
        spec = node.spec
        kubelet = node.kubelet
        port = node.kubelet_port
        return {
            "name": spec.name,
            "os": spec.os,
            "build": spec.build or None,
            "state": "stopped"
            if spec.stopped
            else "running"
            if kubelet is not None
            else "starting",
            "ready": self._pool.is_ready(spec.name),
            "address": node.network.address,
            "cpus": spec.cpus,
            "memory": spec.memory,
            "runtime": f"{node.runtime.version.name}://{node.runtime.version.version}",
            "kubelet": node.kubelet_version,
            "kubeletURL": f"https://127.0.0.1:{port}" if port else None,
            "priorityClass": (spec.priority_class or DEFAULT_PRIORITY_CLASS)
            if spec.windows
            else None,
            "macSpoofing": spec.mac_spoofing if spec.windows else None,
            "proxy": spec.proxy or None,
            "pods": sum(s.state == "ready" for s in node.runtime.sandboxes()),
            "problem": None,
        }

    def _unusable(self, node: UnusableNode) -> dict[str, Any]:
        spec = node.spec
        return {
            "name": spec.name,
            "os": spec.os,
            "build": spec.build or None,
            "state": "not started",
            "ready": False,
            "address": self._pool.cluster.node_ips(spec)[0],
            "cpus": spec.cpus,
            "memory": spec.memory,
            "runtime": None,
            "kubelet": kubelet_version(self._pool.cluster.settings, spec),
            "kubeletURL": None,
            "priorityClass": None,
            "macSpoofing": None,
            "proxy": spec.proxy or None,
            "pods": 0,
            "problem": node.reason,
        }


def _body(request: HttpRequest, kind: type[_T]) -> _T:
    try:
        found = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise UserError(f"the request is not JSON: {error}") from error
    if not isinstance(found, kind):
        raise UserError(f"the request is not a {'list of nodes' if kind is list else 'mapping'}")
    return found


def _containers(node: Node) -> list[dict[str, Any]]:
    runtime = node.runtime
    pods = {s.id: s for s in runtime.sandboxes()}
    stats = {s.id: s for s in runtime.container_stats()}
    out = []
    for container in runtime.containers():
        sandbox, used = pods.get(container.sandbox_id), stats.get(container.id)
        out.append(
            {
                "node": node.spec.name,
                "namespace": sandbox.config.namespace if sandbox else "",
                "pod": sandbox.config.name if sandbox else "",
                "container": container.name,
                "id": container.id,
                "image": container.image,
                "state": container.state,
                "exitCode": container.exit_code if container.state == "exited" else None,
                "attempt": container.attempt,
                "startedAt": container.started_at or None,
                "ip": sandbox.ips[0] if sandbox and sandbox.ips else "",
                "cpuNanoCores": used.cpu.nano_cores if used and used.cpu else None,
                "memoryBytes": used.working_set if used else None,
            }
        )
    return out


def _json(status: int, value: Any) -> HttpResponse:
    return HttpResponse(
        status, [(b"Content-Type", b"application/json")], orjson.dumps(value) + b"\n"
    )
