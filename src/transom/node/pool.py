"""All nodes of a cluster in this process: created from their specifications, started, stopped,
changed and deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.client.api import STRATEGIC_PATCH, is_not_found
from transom.client.resources import NODES
from transom.dns.settings import NAMESERVER
from transom.ingress.first import first_ingress
from transom.kit import dnswire
from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.kit.user_errors import UserError, name_cluster
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.releases.release import parse_release
from transom.machines.power import PowerAction
from transom.node.cluster_access import ClusterAccess, pod_cidrs_of
from transom.node.cluster_services import (
    ClusterDns,
    keep_api_server_published,
    publish_api_server,
    publish_kubeadm_objects,
    relay_api_server,
)
from transom.node.kubeadm_objects import KubeadmCluster
from transom.node.machine import NodeMachine, make_emulated_machine, node_hardware
from transom.node.network import NodeNetwork, NodeStacks
from transom.node.network_settings import API_PORT
from transom.node.node import Node, configured_pause_image
from transom.node.runtimes import MACHINES, check_engine, choose_engines
from transom.node.settings import name_option
from transom.node.spec import NodeSpec, changed_spec, is_control_plane, kubelet_version
from transom.node.write_back import WriteBack
from transom.runtime.sim.catalogue import Catalogue, CatalogueError, catalogue_with
from transom.runtime.sim.engine import SimRuntime
from transom.userland.csi_storage import CsiStorage

if TYPE_CHECKING:
    from transom.ingress import controller as ingress_controller
    from transom.node import real_runtimes
    from transom.node.machine_disks import MachineDisks
else:
    ingress_controller = lazy_import("transom.ingress.controller")
    real_runtimes = lazy_import("transom.node.real_runtimes")

log = logging.getLogger("transom.node")

MAX_LISTENING_NODES = 16  # up to this cluster size, each kubelet has a port of this machine


class UnusableNode(NamedTuple):
    """A node whose files keep it from starting; pods can write these files."""

    spec: NodeSpec
    reason: str
    files: str  # the folder of this machine with the node's files; "" for simulated nodes


SaveSpecs = Callable[[Sequence[NodeSpec]], None]
ReportReady = Callable[[str, int, int], None]
"""Called with the name of a node that has become ready, the number of ready nodes, and the
total.
"""


def read_catalogue(file: str) -> Catalogue | None:
    """Images in addition to the built-in ones, from a user's file."""
    if not file:
        return None
    try:
        return catalogue_with(Path(file).read_text(), file)
    except (OSError, CatalogueError) as problem:
        raise UserError(
            f"the catalogue of images cannot be used: {problem}",
            "docs/images.md describes its format",
        ) from problem


class NodePool:
    """`run` runs the nodes until it is cancelled. `disks` stores the disks of simulated machines;
    without it they end with the process. `save` is called when the nodes have changed.
    """

    def __init__(
        self,
        cluster: ClusterAccess,
        specs: Iterable[NodeSpec],
        disks: MachineDisks | None = None,
        *,
        save: SaveSpecs,
        on_ready: ReportReady = lambda _name, _ready, _all: None,
        max_listening: int = MAX_LISTENING_NODES,
    ) -> None:
        self.cluster = cluster
        self._save_specs = save
        self._on_ready = on_ready
        self._max_listening = max_listening
        self._nodes: dict[str, Node] = {}
        self._unusable: dict[str, UnusableNode] = {}
        self._ready: set[str] = set()
        self._labelling: set[str] = set()  # nodes whose labels are being set
        self._dns: ClusterDns | None = None
        self._ingress: ingress_controller.IngressController | None = None
        specs = list(specs)
        settings = cluster.settings
        self._catalogue = read_catalogue(settings.images)
        self._engines = choose_engines(settings, specs)
        real = any(self._engines.of(spec) != "sim" for spec in specs)
        self._real_runtimes = (
            real_runtimes.RealRuntimes(settings, cluster.clock, cluster.dataplane) if real else None
        )
        self._csi_storage = CsiStorage()
        self._write_back: WriteBack | None = None
        if disks is not None:
            self._write_back = WriteBack(
                disks, cluster.clock, self._nodes.values, self._csi_storage
            )
            self._write_back.start(spec.name for spec in specs)
        for spec in specs:
            self._restore_node(spec)
        cluster.nodes.add_handler(
            add=self._node_changed, update=lambda _old, new: self._node_changed(new)
        )

    # ---- listing ----

    def node(self, name: str) -> Node:
        found = self._nodes.get(name)
        if found is None and name in self._unusable:
            raise UserError(
                f"node {name!r} cannot start: {self._unusable[name].reason}",
                name_cluster(
                    f"repair the files of the node, then: transom node start {name}; or delete it: "
                    f"transom node delete {name}",
                    name_option(self.cluster.settings.name),
                ),
            )
        if found is None:
            known = ", ".join(self._nodes) or "none"
            raise UserError(f"there is no node {name!r}", f"the nodes of this cluster: {known}")
        return found

    def nodes(self) -> list[Node]:
        return list(self._nodes.values())

    def unusable(self) -> list[UnusableNode]:
        return list(self._unusable.values())

    def names(self) -> set[str]:
        return self._nodes.keys() | self._unusable.keys()

    def numbers(self) -> list[int]:
        """Which of the cluster's node addresses are in use."""
        return [spec.number for spec in self._specs()]

    def is_ready(self, name: str) -> bool:
        return name in self._ready

    def all_ready(self) -> bool:
        return all(
            node.spec.stopped or node.spec.name in self._ready for node in self._nodes.values()
        )

    @property
    def dns(self) -> ClusterDns | None:
        """Cluster DNS, while it runs."""
        return self._dns

    def ingress_ports(self) -> list[tuple[str, str]]:
        """Scheme and address of the ports of the ingress controller, while it runs."""
        return list(self._ingress.ports) if self._ingress is not None else []

    async def query_dns(
        self,
        source: str,
        name: str = "kubernetes.default.svc.cluster.local",
        record_type: int = dnswire.A,
    ) -> bytes:
        """Cluster DNS' answer to a query from this address. Raises OSError if there is none."""
        address = self.cluster.service_ip(10)
        query = dnswire.encode_query(1, dnswire.encode_name(name), record_type)
        return await self.cluster.dataplane.ask(address, 53, query, source, timeout=2.0)

    # ---- running ----

    async def run(self) -> None:
        cluster = self.cluster
        unpublish = await self._publish_api_server()
        try:
            async with asyncio.TaskGroup() as group:
                cluster.use_tasks(group)
                group.create_task(cluster.nodes.run())
                group.create_task(cluster.network.run())
                group.create_task(cluster.supervise("cluster DNS", self._run_dns))
                group.create_task(self._publish_kubeadm_objects())
                group.create_task(self._keep_api_server_published())
                group.create_task(cluster.supervise("ingress controller", self._run_ingress))
                if self._real_runtimes is not None:
                    group.create_task(self._real_runtimes.prepare())
                if self._write_back is not None:
                    group.create_task(cluster.supervise("write-back", self._write_back.run))
                for node in self._nodes.values():
                    if not node.spec.stopped:
                        node.start_programs()
        finally:
            unpublish()
            cluster.use_tasks(None)
            for node in self._nodes.values():
                node.close()
            if self._real_runtimes is not None:
                await self._real_runtimes.close()
            if self._write_back is not None:
                await self._write_back.save()

    async def _publish_api_server(self) -> Callable[[], None]:
        """The control-plane node is the endpoint of the service `kubernetes`."""
        cluster, settings = self.cluster, self.cluster.settings
        if cluster.control_plane is None:
            return lambda: None
        if cluster.api_relays:
            relays = contextlib.ExitStack()
            for address, port in cluster.api_relays.items():
                real = ("127.0.0.1", port)
                relays.callback(relay_api_server(cluster.dataplane, address, real))
            return relays.close
        bind = "127.0.0.1" if settings.bind in ("0.0.0.0", "::") else settings.bind
        address = cluster.node_ips(cluster.control_plane)[0]
        await publish_api_server(cluster.admin, address)
        return relay_api_server(cluster.dataplane, address, (bind, settings.port))

    async def _keep_api_server_published(self) -> None:
        cluster = self.cluster
        if cluster.control_plane is None or cluster.api_relays:  # the API servers do it
            return
        address = cluster.node_ips(cluster.control_plane)[0]
        await keep_api_server_published(cluster.admin, cluster.clock, address)

    async def _publish_kubeadm_objects(self) -> None:
        cluster, settings = self.cluster, self.cluster.settings
        if cluster.control_plane is None:
            return
        address = cluster.node_ips(cluster.control_plane)[0]
        described = KubeadmCluster(
            parse_release(settings.release),
            settings.git_version,
            cluster.control_plane.name,
            address,
            API_PORT,
            settings.pod_cidr,
            settings.service_cidr,
        )
        await publish_kubeadm_objects(cluster.admin, described)

    async def _run_dns(self) -> None:
        cluster = self.cluster
        node = cluster.control_plane
        if node is None:
            await asyncio.Event().wait()
            return
        # Policies that allow DNS select the DNS server's pods by their label.
        namespace, name = NAMESERVER.split("/")
        cluster.network.shared.policies.put_server(
            namespace, name, {"k8s-app": name}, cluster.node_ips(node)
        )
        self._dns = ClusterDns(
            cluster.settings,
            cluster.admin,
            cluster.network.informers,
            cluster.dataplane,
            cluster.clock,
            cluster.new_rng(),
            cluster.node_ips(node)[0],
            node.name,
        )
        await self._dns.run()

    async def _run_ingress(self) -> None:
        cluster = self.cluster
        node = cluster.control_plane
        if node is None or cluster.network.relay is None:
            await asyncio.Event().wait()
            return
        await first_ingress(cluster.network.informers)
        self._ingress = ingress_controller.IngressController(
            cluster.admin,
            cluster.network.informers,
            cluster.dataplane,
            cluster.clock,
            cluster.new_rng(),
            cluster.node_ips(node)[0],
            # In a container, its ports are published.
            "0.0.0.0" if cluster.settings.bind == "0.0.0.0" else "127.0.0.1",
        )
        await self._ingress.run()

    def _node_changed(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        node = self._nodes.get(name)
        if node is None:
            return
        cidr = pod_cidrs_of(obj)
        if cidr and node.network.pods.cidr != cidr:
            node.use_pod_cidr(cidr)
        labels = node.restricted_labels
        missing = labels and not labels.items() <= (obj["metadata"].get("labels") or {}).items()
        if missing and name not in self._labelling:
            self.cluster.spawn_if_running(lambda: self._set_labels(name, labels))
        conditions = (obj.get("status") or {}).get("conditions") or ()
        if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
            self._ready.discard(name)
        elif name not in self._ready and node.programs.running("kubelet") is not None:
            self._ready.add(name)
            expected = sum(not other.spec.stopped for other in self._nodes.values())
            self._on_ready(name, len(self._ready), expected)

    async def _set_labels(self, name: str, labels: Mapping[str, str]) -> None:
        self._labelling.add(name)
        body = {"metadata": {"labels": labels}}
        try:
            await self.cluster.admin.patch(NODES, "", name, body, STRATEGIC_PATCH)
        except ApiError as problem:
            log.warning("node %s cannot be labelled: %s", name, problem)
        finally:
            self._labelling.discard(name)

    # ---- user operations ----

    def add(self, specs: Sequence[NodeSpec]) -> None:
        for spec in specs:
            if spec.name in self.names():
                raise UserError(f"there is a node {spec.name!r} already", "choose another name")
        for spec in specs:
            node = self._nodes[spec.name] = self._make_node(spec)
            node.start_programs()
        self._save()

    async def stop(self, name: str) -> None:
        """Power loss: the kubelet reports nothing, and everything on the node ends."""
        await self.node(name).power_off()
        self._ready.discard(name)
        self._save()

    async def shut_down(self, name: str) -> None:
        """An orderly shutdown; then the power is off."""
        node = self.node(name)
        if not node.spec.stopped:
            await node.shut_down()
        await self.stop(name)

    async def start(self, name: str) -> None:
        if name in self._unusable:
            self._restore_node(self._unusable.pop(name).spec)
        node = self.node(name)
        if not node.spec.stopped and node.programs.running("kubelet") is not None:
            return
        node.power_on()
        node.start_programs()
        await node.start_services()
        self._save()

    async def reboot(self, name: str) -> None:
        await self.shut_down(name)
        await self.start(name)

    async def delete(self, name: str) -> None:
        if name in self._unusable:
            await self._delete_unusable(name)
            return
        node = self.node(name)
        option = name_option(self.cluster.settings.name)
        node.check_deletable(f"to delete the cluster with everything in it: transom delete{option}")
        await self.stop(name)
        node.close()
        if self._real_runtimes is not None:
            await self._real_runtimes.remove(node.runtime, node.machine)
        self.cluster.network.forget(name)
        del self._nodes[name]
        self._save()
        if self._write_back is not None:
            self._write_back.forget(name)
        node.delete_certificates()
        await self._delete_object(name)

    async def _delete_unusable(self, name: str) -> None:
        if is_control_plane(self._unusable[name].spec):
            self.node(name)  # raises UserError
        if self._real_runtimes is not None:
            self._real_runtimes.remove_files(name)
        del self._unusable[name]
        self._save()
        if self._write_back is not None:
            self._write_back.forget(name)
        await self._delete_object(name)

    async def _delete_object(self, name: str) -> None:
        try:
            await self.cluster.admin.delete(NODES, "", name)
        except ApiError as problem:
            if not is_not_found(problem):
                raise

    def set(self, name: str, values: Mapping[str, Any]) -> None:
        """Applies the settings that can change while a node runs; takes effect immediately."""
        node = self.node(name)
        spec = changed_spec(self.cluster.settings, node.spec, values)
        check_engine(spec, self._engines.of(spec))
        node.change(spec, flex="flexDrivers" in values)
        self._save()

    def _power_requested(self, name: str, action: PowerAction) -> None:
        """By a program on the node: `shutdown`, Restart-Computer."""
        if name in self._nodes:
            work = self.reboot if action == "restart" else self.shut_down
            self.cluster.spawn_if_running(lambda: work(name))

    def _save(self) -> None:
        self._save_specs(self._specs())

    def _specs(self) -> list[NodeSpec]:
        unusable = (one.spec for one in self._unusable.values())
        return [*(node.spec for node in self._nodes.values()), *unusable]

    # ---- node creation ----

    def _restore_node(self, spec: NodeSpec) -> None:
        """A node of an earlier start. Its pods may have left files that keep it from starting; the
        other nodes, and the cluster, start without it.
        """
        try:
            self._nodes[spec.name] = self._make_node(spec)
        except OSError as problem:
            log.error("node %s cannot start: %s", spec.name, problem)
            settings = self.cluster.settings
            files = (
                ""
                if self._engines.of(spec) == "sim"
                else str(settings.state / MACHINES / spec.name)
            )
            self._unusable[spec.name] = UnusableNode(spec, str(problem), files)
            self.cluster.network.forget(spec.name)

    def _make_node(self, spec: NodeSpec) -> Node:
        engine = self._engines.of(spec)
        check_engine(spec, engine)
        if engine == "sim":
            return self._make_simulated_node(spec)
        return self._make_real_node(spec, engine)

    def _make_simulated_node(self, spec: NodeSpec) -> Node:
        cluster = self.cluster
        machine = make_emulated_machine(spec, cluster.clock, cluster.settings.name)
        saved = self._write_back.load(spec) if self._write_back is not None else None
        if saved is not None and not WriteBack.restore_machine(saved, machine):
            saved = None
        network = self._make_network(spec, machine)
        runtime = SimRuntime(
            machine,
            cluster.clock,
            cluster.new_rng(),
            network.pods,
            cluster.dataplane,
            "docker" if spec.runtime == "docker" else "containerd",
            spec.runtime_version,
            self._catalogue,
            sandbox_image=configured_pause_image(cluster, spec),
            addresses=network.addresses,
            hyperv_gate=spec.feature_gates.get("HyperVContainer", False),
            csi_storage=self._csi_storage,
            stacks=NodeStacks(network),
            cloud=cluster.cloud,
        )
        if saved is not None:
            WriteBack.restore_runtime(saved, runtime)
        network.pods.on_lost(runtime.network_lost)
        node = Node(
            spec,
            machine,
            network,
            runtime,
            cluster,
            engine="sim",
            listens=self._listens,
            is_node=self._nodes.__contains__,
        )
        if spec.windows:
            runtime.use_machine(node.windows_login_machine)
        if spec.flex_drivers and saved is None:
            node.install_flex_drivers()
        machine.power.connect(lambda action: self._power_requested(spec.name, action))
        return node

    def _make_real_node(self, spec: NodeSpec, engine: str) -> Node:
        real, hardware = self._real_runtimes, node_hardware(spec)
        if real is None:
            raise UserError(
                f"node {spec.name!r}: this cluster runs simulated containers only",
                "start the cluster with a node that has engine: oci",
            )
        machine = real.make_machine(spec, hardware)
        network = self._make_network(spec, machine)
        runtime = (
            real.make_native_runtime(spec, machine, network)
            if engine == "oci"
            else real.make_cri_runtime(machine, engine)
        )
        return Node(
            spec,
            machine,
            network,
            runtime,
            self.cluster,
            engine=engine,
            listens=self._listens,
            is_node=self._nodes.__contains__,
            start_runtime=runtime.start,
        )

    def _make_network(self, spec: NodeSpec, machine: NodeMachine) -> NodeNetwork:
        cluster = self.cluster
        release = kubelet_version(cluster.settings, spec)
        network = cluster.network.node(spec, machine, cluster.node_ips(spec), release)
        if not spec.stopped:
            network.boot()
        return network

    def _listens(self) -> bool:
        return len(self._nodes) <= self._max_listening
