"""The nodes of a cluster in this process: machines, runtimes, networks and kubelets, made from their descriptions.

Each kubelet is a client of the API with the identity of its node. What they share is what real nodes would each have for
themselves and what is the same for all: the list of services, and a look at the Node objects (which tells each network its
range of addresses, as the agent of a network plugin does).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import shutil
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.client.api import STRATEGIC_PATCH, is_not_found
from transom.client.events import EventRecorder
from transom.client.informer import Informer
from transom.client.resources import EVENTS, NODES
from transom.cluster import families
from transom.cluster import nodes as specs
from transom.cluster.config import ClusterConfig
from transom.cluster.engines import Engines, check, choose, thresholds
from transom.cluster.errors import ClusterError
from transom.cluster.netconfig import API_PORT, OUTSIDE_NAME, NetworkSettings
from transom.cluster.network import ClusterNetwork
from transom.cluster.nodenet import NodeNet
from transom.cluster.nodes import NodeSpec
from transom.cluster.pki import ClusterPki
from transom.cluster.services import NameServer, publish_api_server
from transom.hosts.api import Hardware
from transom.hosts.linux import LinuxHost
from transom.hosts.windows import csi_proxy
from transom.hosts.windows.host import WindowsHost
from transom.kit.clock import rfc3339
from transom.kubelet.base import Env
from transom.kubelet.config import DEFAULT_PRIORITY_CLASS, KubeletConfig
from transom.kubelet.kubelet import BadConfiguration, Kubelet
from transom.kubelet.os_linux import RULES as LINUX
from transom.kubelet.os_windows import RULES as WINDOWS
from transom.kubelet.osrules import OsRules
from transom.kubelet.static_pods import RealFolder
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.quantity import parse
from transom.network.api import Dataplane
from transom.network.cni.flanneld import CONDITION
from transom.network.stacks import Fabric
from transom.runtime.sim.catalogue import Catalogue, CatalogueError, catalogue_with
from transom.runtime.sim.engine import SimRuntime, default_pause_image
from transom.windows import builds, releases

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer
    from transom.client.api import Client
    from transom.cluster.binaries import NodeBinaries
    from transom.cluster.tracing import Tracing

log = logging.getLogger("transom.cluster")

_LISTENERS = 16  # clusters up to this size have a port of this machine for each kubelet
_TWO_ADDRESSES = (1, 20)  # since then a kubelet takes one of each family
_RESTRICTED = ("node-role.kubernetes.io/", "node-restriction.kubernetes.io/")


ON: ContextVar[str] = ContextVar("ON", default="")
"""The machine whose kubelet a task works for: whoever reads the log of one node wants to know."""

Life = Callable[[], Coroutine[None, None, None]]
Supervise = Callable[[str, Life], Coroutine[None, None, None]]


class Machine:
    """One node: what stays while it is off (host, runtime) and the kubelet that runs while it is on."""

    __slots__ = ("binaries", "close", "host", "kubelet", "listener", "network", "runtime", "spec", "task")

    def __init__(self, spec: NodeSpec, host: Any, runtime: Any, network: NodeNet) -> None:
        self.spec = spec
        self.host = host
        self.runtime = runtime
        self.network = network
        self.kubelet: Kubelet | None = None
        self.task: asyncio.Task[None] | None = None
        self.listener: socket.socket | None = None
        self.close: Callable[[], None] | None = None
        self.binaries: NodeBinaries | None = None  # once somebody asked for them


class _Services:
    """Services by namespace, for the environment of containers."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    async def synced(self) -> None:
        await self._informer.synced()

    def list(self, namespace: str) -> Sequence[Object]:
        return self._informer.list(namespace)


def _rules(spec: NodeSpec) -> OsRules:
    return WINDOWS if spec.windows else LINUX


def _faults(machine: Machine) -> None:
    """What is wrong with a machine from the start, or since somebody said so."""
    if machine.spec.windows:
        machine.host.hns.allow_mac_spoofing(machine.spec.mac_spoofing)
        csi_proxy.install(machine.host.files, machine.spec.csi_proxy)
    if isinstance(machine.runtime, SimRuntime):
        machine.runtime.proxy = machine.spec.proxy


def catalogue(file: str) -> Catalogue | None:
    """Images beside our own, from a file of the user's."""
    if not file:
        return None
    try:
        return catalogue_with(Path(file).read_text(), file)
    except (OSError, CatalogueError) as problem:
        raise ClusterError(f"the catalogue of images cannot be used: {problem}", "docs/images.md says how it is written") \
            from problem


class Fleet:
    """`run` keeps the nodes going until it is cancelled. `client` makes a client for a user and its groups."""

    def __init__(
        self, api: ApiServer, config: ClusterConfig, pki: ClusterPki, nodes: Iterable[NodeSpec],
        fabric: Fabric, dataplane: Dataplane, supervise: Supervise,
    ) -> None:
        self._api = api
        self._config = config
        self._pki = pki
        self._supervise = supervise
        self.dataplane = dataplane
        self._rng = random.SystemRandom()
        self._catalogue = catalogue(config.images)
        nodes = list(nodes)
        self._chosen = choose(config, nodes)
        real = any(self._chosen.of(spec) != "sim" for spec in nodes)
        self._engines = Engines(config, api.clock, dataplane) if real else None
        self._machines: dict[str, Machine] = {}
        self._tasks: asyncio.TaskGroup | None = None
        viewer = self._client("system:transom:nodes", ("system:masters", "system:authenticated"))
        self._admin = viewer
        self._nodes = Informer(viewer, NODES, api.clock, random.Random(self._rng.getrandbits(64)))
        self._nodes.add_handler(add=self._seen, update=lambda _, new: self._seen(new))
        self.network = ClusterNetwork(config, viewer, api.clock, random.Random(self._rng.getrandbits(64)), fabric, dataplane)
        self._names: NameServer | None = None
        self._tracing: Tracing | None = None
        self._ready: set[str] = set()
        self.on_ready: Callable[[str, int, int], None] = lambda _name, _ready, _all: None
        for spec in nodes:
            self._machines[spec.name] = self._make(spec)

    # ---- what there is -------------------------------------------------------------------------------------------

    def machine(self, name: str) -> Machine:
        found = self._machines.get(name)
        if found is None:
            known = ", ".join(self._machines) or "none"
            raise ClusterError(f"there is no node {name!r}", f"the nodes of this cluster: {known}")
        return found

    def machines(self) -> list[Machine]:
        return list(self._machines.values())

    def all_ready(self) -> bool:
        return all(m.spec.stopped or m.spec.name in self._ready for m in self._machines.values())

    def is_ready(self, name: str) -> bool:
        return name in self._ready

    def names(self) -> set[str]:
        return set(self._machines)

    def pod_cidr(self, node: str) -> str | None:
        """The ranges of a Node's pods, with a comma; None when there is no such Node."""
        found = self._nodes.get("", node)
        return None if found is None else ",".join((found.get("spec") or {}).get("podCIDRs") or ())

    def node_address(self, node: str) -> str:
        """The InternalIP of a Node; "" when there is none."""
        found = self._nodes.get("", node) or {}
        addresses = (found.get("status") or {}).get("addresses") or ()
        return next((str(a["address"]) for a in addresses if a["type"] == "InternalIP"), "")

    async def list_events(self) -> list[Object]:
        return list((await self._admin.list(EVENTS, "")).items)

    def api_addresses(self) -> tuple[str, ...]:
        """Where nodes find the API server: on the control plane's node, and by its service."""
        import ipaddress

        first = min(self._machines.values(), key=lambda m: m.spec.number)
        service = ipaddress.ip_network(families.of(self._config.service_cidr, 4))[1]
        return f"https://{self.ip(first.spec)}:{API_PORT}", f"https://{service}:443", f"https://{service}"

    def ip(self, spec: NodeSpec) -> str:
        return self.ips(spec)[0]

    def ips(self, spec: NodeSpec) -> tuple[str, ...]:
        """One of each family that the node has, IPv4 first."""
        import ipaddress

        ranges = families.split(self._config.node_cidr)[: 2 if specs.has_ipv6(self._config, spec) else 1]
        return tuple(str(ipaddress.ip_network(text)[spec.number + 1]) for text in ranges)

    # ---- life ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        unpublish = await self._publish()
        try:
            async with asyncio.TaskGroup() as group:
                self._tasks = group
                group.create_task(self._nodes.run())
                group.create_task(self.network.run())
                group.create_task(self._supervise("name server", self._name_server))
                if self._engines is not None:
                    group.create_task(self._engines.prepare())
                for machine in self._machines.values():
                    if not machine.spec.stopped:
                        self._start(machine)
        finally:
            unpublish()
            self._tasks = None
            for machine in self._machines.values():
                self._forget_kubelet(machine)
            if self._engines is not None:
                await self._engines.close()

    async def _publish(self) -> Callable[[], None]:
        """Where the service `kubernetes` leads: the first node, which is the control plane's."""
        bind = "127.0.0.1" if self._config.bind in ("0.0.0.0", "::") else self._config.bind
        first = min(self._machines.values(), key=lambda m: m.spec.number, default=None)
        if first is None:
            return lambda: None
        return await publish_api_server(self._admin, self.dataplane, self.ip(first.spec), (bind, self._config.port))

    async def _name_server(self) -> None:
        first = min(self._machines.values(), key=lambda m: m.spec.number, default=None)
        if first is None:
            await asyncio.Event().wait()
            return
        self._names = NameServer(
            self._config, self._admin, self.network.informers, self.dataplane, self._api.clock,
            random.Random(self._rng.getrandbits(64)), self.ip(first.spec), first.spec.name,
        )
        await self._names.run()

    def tracing(self) -> Tracing:
        """Who answers `transom trace`."""
        from transom.cluster.tracing import Tracing

        if self._tracing is None:
            respond = self._names.server.respond if self._names is not None else None
            self._tracing = Tracing(
                self.network, self._admin, self._api.clock, self._machines.values, respond, release=self._config.release,
                outside_name=OUTSIDE_NAME, proxy_problem=self.network.proxy_problem,
            )
        return self._tracing

    def _start(self, machine: Machine) -> None:
        assert self._tasks is not None, "the fleet is not running"
        machine.task = self._tasks.create_task(
            self._supervise(f"kubelet of {machine.spec.name}", lambda: self.kubelet_life(machine))
        )
        if machine.binaries is not None:
            machine.binaries.booted()

    async def kubelet_life(
        self, machine: Machine, config: KubeletConfig | None = None, way: Callable[[Client], Client] | None = None
    ) -> None:
        """One life of a node's kubelet, until it is cancelled. `config` where it is not to be the node's usual one; `way` is
        how it speaks with the API server then."""
        if self._engines is not None and not isinstance(machine.runtime, SimRuntime):
            await self._nodes.synced()  # containers that are found again need their node's range of addresses
            await machine.runtime.start()
        ON.set(machine.spec.name)
        kubelet, events = self._kubelet(machine, config, way)
        if machine.binaries is not None:
            events.told = machine.binaries.told
        machine.kubelet = kubelet
        closing = [
            self.dataplane.listen(address, kubelet.env.config.port, lambda sock: self._accepted(kubelet, sock))
            for address in self.ips(machine.spec)
        ]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(events.run())
                group.create_task(kubelet.run(machine.listener.dup() if machine.listener is not None else None))
                group.create_task(self._roles(machine))
        finally:
            for close in closing:
                close()
            machine.kubelet = None

    def binaries(self, name: str) -> NodeBinaries:
        """The programs that make a machine a node, to be stopped and started one by one."""
        machine = self.machine(name)
        if machine.binaries is None:
            from transom.cluster.binaries import NodeBinaries

            if not (machine.spec.windows and isinstance(machine.runtime, SimRuntime)):
                raise ClusterError(f"{name} is no simulated Windows node", "only those have programs that can be started alone")
            machine.binaries = NodeBinaries(self, machine)
        return machine.binaries

    def spawn(self, life: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """For what runs on a node; whoever wants to know of its failures catches them."""
        try:
            if self._tasks is None:
                raise RuntimeError("nothing runs yet")
            return self._tasks.create_task(life)
        except RuntimeError as problem:  # also while all of them end
            life.close()
            raise ClusterError("the nodes are not running") from problem

    async def stop_kubelet(self, machine: Machine) -> None:
        """The process has ended, as in a crash: containers go on, and the next kubelet finds them."""
        task, machine.task = machine.task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _accepted(self, kubelet: Kubelet, sock: socket.socket) -> None:
        async def serve() -> None:
            try:
                await kubelet.server.adopt(sock)
            except (OSError, ssl.SSLError) as problem:
                log.info("a connection to the kubelet of %s failed: %s", kubelet.env.config.node_name, problem)

        if self._tasks is not None:
            self._tasks.create_task(serve())

    def _forget_kubelet(self, machine: Machine) -> None:
        machine.kubelet = None
        if machine.listener is not None:
            machine.listener.close()
            machine.listener = None

    async def _roles(self, machine: Machine) -> None:
        """Labels that a kubelet may not give itself are given by whoever makes the cluster, as kubeadm does."""
        labels = {k: v for k, v in machine.spec.labels.items() if k.startswith(_RESTRICTED)}
        if not labels:
            return
        name = machine.spec.name
        await self._nodes.synced()
        while (node := self._nodes.get("", name)) is None:
            await self._api.clock.sleep(0.01)
        if not labels.items() <= (node["metadata"].get("labels") or {}).items():
            await self._admin.patch(NODES, "", name, {"metadata": {"labels": labels}}, STRATEGIC_PATCH)

    def announce(self, machine: Machine, node: str = "") -> None:
        """What the agent of the network says of its Node, as soon as that can be written."""
        if self._tasks is not None and machine.network.annotations:
            with contextlib.suppress(ClusterError):  # the last news of a cluster that ends
                self.spawn(self._announce(machine, node or machine.spec.name))

    async def _announce(self, machine: Machine, node: str) -> None:
        try:
            body = {"metadata": {"annotations": machine.network.annotations}}
            await self._admin.patch(NODES, "", node, body, STRATEGIC_PATCH)
            condition = {**CONDITION, "lastHeartbeatTime": rfc3339(self._api.clock.time()),
                         "lastTransitionTime": rfc3339(self._api.clock.time())}  # fmt: skip
            await self._admin.patch(NODES, "", node, {"status": {"conditions": [condition]}}, STRATEGIC_PATCH,
                                    subresource="status")  # fmt: skip
        except ApiError as problem:
            log.warning("node %s cannot be told of its network: %s", node, problem)

    # ---- what people do with nodes -------------------------------------------------------------------------------

    async def add(self, specs_: Sequence[NodeSpec]) -> None:
        for spec in specs_:
            if spec.name in self._machines:
                raise ClusterError(f"there is a node {spec.name!r} already", "choose another name")
        if self._config.network != NetworkSettings():  # the usual one fits everything
            from transom.cluster import netcheck

            netcheck.check(self._config, [*(machine.spec for machine in self._machines.values()), *specs_])
        for spec in specs_:
            machine = self._machines[spec.name] = self._make(spec)
            self._start(machine)
        self._save()

    async def stop(self, name: str) -> None:
        """As if its plug was pulled: the kubelet says nothing, everything that ran has ended."""
        machine = self.machine(name)
        await self.stop_kubelet(machine)
        if machine.binaries is not None:
            machine.binaries.powered_off()
        machine.host.reboot()
        machine.network.halt()
        machine.spec = replace(machine.spec, stopped=True)
        self._ready.discard(name)
        self._save()

    async def start(self, name: str) -> None:
        machine = self.machine(name)
        if machine.task is not None and not machine.task.done():
            return
        machine.spec = replace(machine.spec, stopped=False)
        machine.network.boot()
        self._start(machine)
        self._save()

    async def reboot(self, name: str) -> None:
        await self.stop(name)
        await self.start(name)

    async def delete(self, name: str) -> None:
        machine = self.machine(name)
        await self.stop(name)
        self._forget_kubelet(machine)
        if machine.binaries is not None:
            machine.binaries.close()
        if self._engines is not None:
            await self._engines.remove(machine.runtime, machine.host)
        self.network.forget(name)
        del self._machines[name]
        self._save()
        # Another one of this name may have another address, which its certificate has to name.
        shutil.rmtree(self._certificates(name), ignore_errors=True)
        try:
            await self._admin.delete(NODES, "", name)
        except ApiError as problem:
            if not is_not_found(problem):
                raise

    def set(self, name: str, values: Mapping[str, Any]) -> None:
        """What can be changed while a node runs; takes effect at once."""
        machine = self.machine(name)
        spec = specs.changed(self._config, machine.spec, values)
        check(spec, self._chosen.of(spec))
        machine.spec = spec
        _faults(machine)
        self._save()

    def numbers(self) -> list[int]:
        return [m.spec.number for m in self._machines.values()]

    def _save(self) -> None:
        specs.save(self._config, [m.spec for m in self._machines.values()])

    # ---- how a node is made --------------------------------------------------------------------------------------

    def _client(self, user: str, groups: tuple[str, ...], agent: str = "transom") -> Client:
        from transom.apiserver.context import User
        from transom.apiserver.inprocess import InProcessClient

        return InProcessClient(self._api, User(user, groups), user_agent=agent)

    def _make(self, spec: NodeSpec) -> Machine:
        hardware = Hardware(cpus=spec.cpus, memory=parse(spec.memory).value(), disk=parse(spec.disk).value())
        engine = self._chosen.of(spec)
        check(spec, engine)
        engines = self._engines if engine != "sim" else None
        host: Any
        runtime: Any
        if engines is not None:
            host = engines.host(spec, hardware)
        elif spec.windows:
            host = WindowsHost(spec.name, self._api.clock, hardware, build=builds.BUILDS[spec.build], seed=self._config.name)
        else:
            host = LinuxHost(spec.name, self._api.clock, hardware, seed=self._config.name)
        addresses = self.ips(spec)
        network = self.network.node(spec, host, addresses, specs.kubelet_version(self._config, spec))
        if not spec.stopped:
            network.boot()
        if engines is not None:
            runtime = engines.runtime(spec, host, network) if engine == "oci" else engines.containerd(host, engine)
        else:
            runtime = SimRuntime(
                host, self._api.clock, random.Random(self._rng.getrandbits(64)), network.pods, self.dataplane,
                "docker" if spec.runtime == "docker" else "containerd", spec.runtime_version, self._catalogue,
                sandbox_image=self._pause_image(spec), addresses=addresses,
                hyperv_gate=spec.feature_gates.get("HyperVContainer", False),
            )
        machine = Machine(spec, host, runtime, network)
        _faults(machine)
        return machine

    def _pause_image(self, spec: NodeSpec) -> str:
        return specs.pause_image(self._config, spec) or default_pause_image(spec.build)

    def _kubelet(
        self, machine: Machine, config: KubeletConfig | None, way: Callable[[Client], Client] | None
    ) -> tuple[Kubelet, EventRecorder]:
        spec = machine.spec
        config = config or self.settings(spec)
        agent = f"kubelet/{config.version} ({spec.os}/amd64) kubernetes/kubelet"
        client = self._client(f"system:node:{config.node_name}", ("system:nodes", "system:authenticated"), agent)
        client = client if way is None else way(client)
        rng = random.Random(self._rng.getrandbits(64))
        events = EventRecorder(client, "kubelet", machine.host.clock, rng, host=config.node_name)
        addresses = self.ips(spec)
        address = addresses[0]
        env = Env(
            config=config,
            os=_rules(spec),
            client=client, clock=machine.host.clock, rng=rng, events=events, host=machine.host, runtime=machine.runtime,
            services=_Services(self.network.services),
            dial=lambda host, port: self.dataplane.connect(host, port, address),
            node=lambda: None,
        )
        static = RealFolder(spec.static_pods) if spec.static_pods else None
        try:
            kubelet = Kubelet(env, tls=lambda: self._tls(spec, addresses), static=static)
        except BadConfiguration as problem:
            raise ClusterError(f"the kubelet of {spec.name} refuses to start: {problem}") from problem
        if machine.listener is None and len(self._machines) <= _LISTENERS:
            machine.listener = socket.create_server(("127.0.0.1", 0))
        return kubelet, events

    def settings(self, spec: NodeSpec) -> KubeletConfig:
        """What the kubelet of a node runs with since boot."""
        import ipaddress

        version, addresses = specs.kubelet_version(self._config, spec), self.ips(spec)

        dns = str(ipaddress.ip_network(families.of(self._config.service_cidr, 4))[10])
        second = addresses[1] if len(addresses) > 1 and releases.parse(version) >= _TWO_ADDRESSES else ""
        usual = _rules(spec).default_eviction(releases.parse(version))
        eviction, images = thresholds(spec, self._chosen.of(spec), usual)
        return _rules(spec).as_guided(KubeletConfig(
            node_name=spec.name, node_ip=addresses[0], secondary_node_ip=second, version=version, max_pods=spec.max_pods,
            node_labels={k: v for k, v in spec.labels.items() if not k.startswith(_RESTRICTED)},
            register_with_taints=spec.taints, cluster_dns=(dns,), kube_reserved=spec.kube_reserved,
            system_reserved=spec.system_reserved, eviction_soft=spec.eviction_soft,
            eviction_hard=eviction, image_gc_high_threshold_percent=images, image_gc_low_threshold_percent=min(80, images - 1),
            eviction_soft_grace_period=spec.eviction_soft_grace_period, feature_gates=spec.feature_gates,
            pod_infra_image=self._pause_image(spec),
            windows_priorityclass=spec.priority_class or DEFAULT_PRIORITY_CLASS,
        ))

    def _certificates(self, name: str) -> Path:
        return self._config.state / "nodes" / name

    def _tls(self, spec: NodeSpec, addresses: tuple[str, ...]) -> ssl.SSLContext:
        from transom.http import server_context
        from transom.kit import pki as kit

        folder = self._certificates(spec.name)
        certificate, key = folder / "kubelet.crt", folder / "kubelet.key"
        if not (certificate.exists() and key.exists()):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            authority = kit.load(self._pki.ca, self._pki.ca_key)
            kit.save(kit.issue_server(authority, f"system:node:{spec.name}", [spec.name, "localhost"],
                                      [*addresses, "127.0.0.1"]), certificate, key)  # fmt: skip
        return server_context(certificate, key, self._pki.ca)

    def _seen(self, node: Object) -> None:
        name = node["metadata"]["name"]
        machine = self._machines.get(name)
        if machine is None:
            return
        cidr = ",".join((node.get("spec") or {}).get("podCIDRs") or ())
        if cidr and machine.network.pods.cidr != cidr:
            machine.network.pods.use(cidr)
            if machine.kubelet is not None:
                machine.kubelet.agent.changed()
            self.announce(machine)
        ready = any(
            c["type"] == "Ready" and c["status"] == "True" for c in (node.get("status") or {}).get("conditions") or ()
        )
        if not ready:
            self._ready.discard(name)
        elif name not in self._ready and machine.task is not None:
            self._ready.add(name)
            self.on_ready(name, len(self._ready), sum(not m.spec.stopped for m in self._machines.values()))
