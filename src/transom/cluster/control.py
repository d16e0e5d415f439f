"""What `transom node` and `transom ps` ask of a running cluster: paths of its API server below /transom.

They are authorized like any other path that is not a resource, so the cluster's admin may use them and nobody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from transom.cluster import inspect_hns
from transom.cluster import nodes as specs
from transom.cluster.config import ClusterConfig
from transom.cluster.errors import ClusterError
from transom.cluster.fleet import Fleet, Machine
from transom.http.messages import Answer, Request, Response
from transom.kubelet.config import DEFAULT_PRIORITY_CLASS

if TYPE_CHECKING:
    from transom.cluster.nodeshell import NodeShells

ROOT = "/transom"
_T = TypeVar("_T")


class Control:
    def __init__(self, config: ClusterConfig, fleet: Fleet) -> None:
        self._config = config
        self._fleet = fleet
        self._logins: NodeShells | None = None

    async def __call__(self, request: Request) -> Answer:
        parts = request.path.removeprefix(ROOT).strip("/").split("/")
        try:
            match request.method, parts:
                case "GET", ["nodes"]:
                    return _json(200, {"items": [self._node(m) for m in self._fleet.machines()]})
                case "POST", ["nodes"]:
                    return await self._add(request)
                case "DELETE", ["nodes", name]:
                    await self._fleet.delete(name)
                    return _json(200, {"name": name})
                case "POST", ["nodes", name, "start" | "stop" | "reboot" as verb]:
                    verbs: dict[str, Callable[[str], Awaitable[None]]] = {
                        "start": self._fleet.start, "stop": self._fleet.stop, "reboot": self._fleet.reboot,
                    }
                    await verbs[verb](name)
                    if verb != "stop" and self._logins is not None:
                        await self._logins.booted(name)
                    return _json(200, self._node(self._fleet.machine(name)))
                case "POST", ["nodes", name, "set"]:
                    self._fleet.set(name, _body(request, dict))
                    return _json(200, self._node(self._fleet.machine(name)))
                case method, ["nodes", name, "hns", *rest]:
                    self._fleet.network.fabric.look(name)  # agents bring a node up to date when somebody looks
                    return _json(200, inspect_hns.answer(name, self._fleet.machine(name).host, method, rest))
                case "GET" | "POST", ["nodes", name, "exec"]:
                    return self._shells().serve(name, request)
                case "GET", ["inside"]:
                    from transom.cluster import inspect_node

                    return _json(200, await inspect_node.inside(self._fleet))
                case "GET", ["nodes", name, "logs"]:
                    from transom.cluster import inspect_node

                    return _json(200, await inspect_node.logs(self._fleet, name))
                case "GET", ["trace"]:
                    return _json(200, await self._fleet.tracing().answer(request.query))
                case "GET", ["relays"]:
                    return _json(200, self._relays())
                case "GET", ["containers"]:
                    return _json(200, {"items": [c for m in self._fleet.machines() for c in _containers(m)]})
        except ClusterError as problem:
            return _json(400, {"message": problem.message, "hint": problem.hint})
        return _json(404, {"message": f"there is no {request.method} {request.path}", "hint": ""})

    def _shells(self) -> NodeShells:
        if self._logins is None:
            from transom.cluster.nodeshell import NodeShells

            self._logins = NodeShells(self._fleet)
        return self._logins

    async def _add(self, request: Request) -> Answer:
        wanted = specs.from_file(self._config, _body(request, list))
        added = specs.settle(self._config, [replace(spec, number=0) for spec in wanted], self._fleet.numbers())
        await self._fleet.add(added)
        return _json(201, {"items": [self._node(self._fleet.machine(spec.name)) for spec in added]})

    def _relays(self) -> dict[str, Any]:
        """How this machine reaches services, and pods this machine's network."""
        network = self._fleet.network
        return {
            "items": [way._asdict() for way in network.relay.ways()] if network.relay is not None else [],
            "outgoing": [way._asdict() for way in network.outgoing.ways],
        }

    def _node(self, machine: Machine) -> dict[str, Any]:
        spec = machine.spec
        kubelet = machine.kubelet
        port = machine.listener.getsockname()[1] if machine.listener is not None else 0
        return {
            "name": spec.name,
            "os": spec.os,
            "build": spec.build or None,
            "state": "stopped" if spec.stopped else "running" if kubelet is not None else "starting",
            "ready": self._fleet.is_ready(spec.name),
            "address": self._fleet.ip(spec),
            "cpus": spec.cpus,
            "memory": spec.memory,
            "runtime": f"{machine.runtime.version.name}://{machine.runtime.version.version}",
            "kubelet": specs.kubelet_version(self._config, spec),
            "kubeletURL": f"https://127.0.0.1:{port}" if port else None,
            "priorityClass": (spec.priority_class or DEFAULT_PRIORITY_CLASS) if spec.windows else None,
            "macSpoofing": spec.mac_spoofing if spec.windows else None,
            "proxy": spec.proxy or None,
            "pods": sum(s.state == "ready" for s in machine.runtime.sandboxes()),
        }


def _body(request: Request, kind: type[_T]) -> _T:
    try:
        found = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise ClusterError(f"the request is not JSON: {error}") from error
    if not isinstance(found, kind):
        raise ClusterError(f"the request is not a {'list of nodes' if kind is list else 'mapping'}")
    return found


def _containers(machine: Machine) -> list[dict[str, Any]]:
    runtime = machine.runtime
    pods = {s.id: s for s in runtime.sandboxes()}
    stats = {s.id: s for s in runtime.container_stats()}
    out = []
    for container in runtime.containers():
        sandbox, used = pods.get(container.sandbox_id), stats.get(container.id)
        out.append({
            "node": machine.spec.name,
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
        })
    return out


def _json(status: int, value: Any) -> Response:
    return Response(status, [(b"Content-Type", b"application/json")], orjson.dumps(value) + b"\n")
