"""A node: a machine, a network, a container runtime and programs.

The machine and the runtime stay while the node is switched off, so a restarted kubelet finds its
pods. Simulated and real nodes, Linux and Windows, all use this class.
"""

from __future__ import annotations

import logging
import shutil
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from transom.client.api import STRATEGIC_PATCH
from transom.client.resources import NODES
from transom.http import server_context
from transom.kit import pki
from transom.kit.clock import rfc3339
from transom.kit.files import make_private
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import UserError
from transom.kubelet.config import DEFAULT_PRIORITY_CLASS, KubeletConfig
from transom.kubelet.configuration_fields import configuration_settings
from transom.kubelet.os_linux import RULES as LINUX_RULES
from transom.kubelet.os_windows import RULES as WINDOWS_RULES
from transom.kubelet.osrules import OsRules
from transom.machinery.errors import ApiError
from transom.machinery.releases import Release
from transom.machinery.releases.kubelet import kubelet_has
from transom.machinery.releases.kubelet_flags import kubelet_accepts
from transom.machines.files import FileTree
from transom.machines.windows import csi_proxy
from transom.machines.windows.certificate_stores import (
    STORES,
    pem_certificates,
    provided_stores,
)
from transom.machines.windows.host import WindowsHost
from transom.machines.windows.registry import Hive
from transom.machines.windows.system import shutdown_seconds
from transom.network.cni.flanneld import CONDITION
from transom.node.cluster_access import ClusterAccess
from transom.node.machine import NodeMachine, windows_machine
from transom.node.network import NodeNetwork
from transom.node.network_windows import WindowsNodeNetwork
from transom.node.programs.command_lines import (
    WINDOWS_FILES,
    install_node_files,
    make_kubeconfig,
)
from transom.node.programs.containerd_config import (
    PATHS,
    ContainerdConfig,
    containerd_config_text,
    install_containerd_config,
    read_containerd_config,
)
from transom.node.programs.flags.gates import cluster_gates
from transom.node.programs.node_programs import NodePrograms
from transom.node.runtimes import driver_folders, eviction_thresholds
from transom.node.spec import NodeSpec, is_control_plane, kubelet_version, pause_image
from transom.runtime.api import ContainerRuntime
from transom.runtime.sim.engine import SimRuntime, default_pause_image
from transom.windows import releases

if TYPE_CHECKING:
    from transom.kubelet.kubelet import Kubelet
    from transom.runtime.sim.login import context as login_context
    from transom.runtime.sim.login import flex_drivers, units
    from transom.runtime.sim.login import machine as login_machine
    from transom.runtime.sim.login.machine import WindowsMachine
    from transom.runtime.sim.login.session import LoginMachine
else:
    flex_drivers = lazy_import("transom.runtime.sim.login.flex_drivers")
    login_context = lazy_import("transom.runtime.sim.login.context")
    login_machine = lazy_import("transom.runtime.sim.login.machine")
    units = lazy_import("transom.runtime.sim.login.units")

log = logging.getLogger("transom.node")

# since this version --node-ip accepts one address of each family
_RESTRICTED_LABELS: Final = ("node-role.kubernetes.io/", "node-restriction.kubernetes.io/")


class Node:
    """`kubelet` is the running one. `listens`: whether the kubelet also has a port of this machine.
    `is_node`: whether the cluster has a machine of this name. `start_runtime` lets a real runtime
    find its containers again.
    """

    def __init__(
        self,
        spec: NodeSpec,
        machine: NodeMachine,
        network: NodeNetwork,
        runtime: ContainerRuntime,
        cluster: ClusterAccess,
        *,
        engine: str,
        listens: Callable[[], bool],
        is_node: Callable[[str], bool],
        start_runtime: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.spec = spec
        self.machine = machine
        self.network = network
        self.runtime = runtime
        self.cluster = cluster
        self.engine = engine  # sim, oci, or the address of a containerd
        self._kubelet: Kubelet | None = None
        self.kubelet_version = kubelet_version(cluster.settings, spec)
        self.rules: OsRules = WINDOWS_RULES if spec.windows else LINUX_RULES
        self.driver_folders = driver_folders(cluster.settings, spec)
        self.programs = NodePrograms(self)
        user = f"system:node:{spec.name}"
        newline = "\r\n" if spec.windows else "\n"
        servers = cluster.api_servers()
        self.installed_kubeconfig = make_kubeconfig(servers[0], user, newline)
        self._listens = listens
        self._is_node = is_node
        self._start_runtime = start_runtime
        self._listener: socket.socket | None = None
        self._login_machine: WindowsMachine | None = None
        self._linux_machine: units.LinuxMachine | None = None
        install_node_files(
            machine.files,
            network,
            self.installed_kubeconfig,
            releases.parse_release_version(self.kubelet_version),
            simulated=self.simulated,
        )
        if isinstance(network, WindowsNodeNetwork):
            network.follow_programs(self._program_of)
        if isinstance(runtime, SimRuntime) and network.runtime == "containerd":
            self._configure_containerd(runtime)
        self._apply_faults()

    def _configure_containerd(self, runtime: SimRuntime) -> None:
        """Writes config.toml; containerd reads it now if it has been changed, and at each start."""
        files, pods = self.machine.files, self.network.pods
        path = PATHS[self.spec.os]
        usual = ContainerdConfig(
            configured_pause_image(self.cluster, self.spec), pods.binaries, pods.directory
        )

        def configure() -> bool:
            try:
                found = read_containerd_config(files, path)
            except ValueError as problem:
                log.warning("containerd of node %s does not start: %s", self.spec.name, problem)
                return False
            runtime.use_sandbox_image(found.sandbox_image or usual.sandbox_image)
            directory = found.cni_directory or usual.cni_directory
            binaries = found.cni_binaries or usual.cni_binaries
            if (pods.directory, pods.binaries) != (directory, binaries):
                pods.look_in(directory, binaries)
            return True

        separator = "\\" if self.spec.windows else "/"
        body = containerd_config_text(runtime.version.version, usual)
        try:
            changed = install_containerd_config(files, path, body, separator)
        except OSError as problem:
            log.warning("%s of node %s cannot be written: %s", path, self.spec.name, problem)
            return
        if changed and not configure():
            runtime.service.stop()
        runtime.service.use_configuration(configure)

    def _program_of(self, protocol: str, port: int) -> str:
        """The path of the program that listens on a port of a simulated Windows machine."""
        if not isinstance(self.runtime, SimRuntime):
            return ""
        found = self.runtime.core.node_namespace.listener(protocol, port)
        if found is None:  # only kube-proxy listens on addresses of services
            return WINDOWS_FILES.programs["kube-proxy"]
        if found.program:
            return WINDOWS_FILES.programs.get(found.program, found.program)
        machine = self._login_machine
        rows = machine.processes.list() if machine is not None else ()
        return next((row.argv[0] for row in rows if row.pid == found.pid and row.argv), "")

    def listens_inside(self, sandbox_id: str, address: str, port: int, protocol: str) -> bool:
        """Whether a simulated program listens there within the sandbox, or on the machine itself.
        Real programs are known to the kernel.
        """
        return isinstance(self.runtime, SimRuntime) and self.runtime.listens_inside(
            sandbox_id, address, port, protocol
        )

    def hosts_addresses(self, sandbox_id: str, name: str) -> list[str]:
        """The addresses of a name for the programs of a sandbox that need no DNS."""
        if isinstance(self.runtime, SimRuntime):
            return self.runtime.hosts_addresses(sandbox_id, name)
        return ["127.0.0.1"] if name.rstrip(".").lower() == "localhost" else []

    async def resolve(self, name: str) -> list[str]:
        """The addresses of a name for the programs of a simulated machine."""
        files = self.machine.files
        if not isinstance(self.runtime, SimRuntime) or not isinstance(files, FileTree):
            return []
        try:
            return await login_context.resolve_on_machine(self.runtime.core, files, name)
        except OSError:  # also socket.gaierror: no such name, or no name server answers
            return []

    @property
    def simulated(self) -> bool:
        return isinstance(self.runtime, SimRuntime)

    @property
    def hostname(self) -> str:
        if self.spec.windows:
            return windows_machine(self.machine).computer_name
        return self.machine.identity.hostname

    @property
    def kubelet(self) -> Kubelet | None:
        return self._kubelet

    def kubelet_started(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    def kubelet_ended(self, kubelet: Kubelet) -> None:
        if self._kubelet is kubelet:
            self._kubelet = None

    def is_other_node(self, name: str) -> bool:
        """Whether a node name is that of another machine of the cluster."""
        own = self.kubelet.env.config.node_name if self.kubelet is not None else self.spec.name
        return name not in (self.spec.name, own) and self._is_node(name)

    # ---- power ----

    def power_on(self) -> None:
        """Starts the machine and its network, without programs."""
        self.spec = replace(self.spec, stopped=False)
        self.network.boot()

    def start_programs(self) -> None:
        """Starts the programs of the boot. Needs the tasks of `cluster`."""
        if isinstance(self.machine, WindowsHost) and isinstance(self.runtime, SimRuntime):
            core, files = self.runtime.core, self.machine.files
            core.system_ports.boot(
                self.machine.registry,
                lambda name: login_context.resolve_on_machine(core, files, name),
            )
        self.programs.boot()
        cidr = self.cluster.pod_cidr(self.spec.name)
        if cidr and self.network.pods.cidr == cidr:
            self.programs.start_network(cidr)

    async def start_services(self) -> None:
        """Starts the services of a Windows machine that users have configured."""
        if self._login_machine is not None:
            await self._login_machine.boot()

    def stopped_services(self, *names: str) -> tuple[str, ...]:
        """Those of these Windows services that a user has stopped."""
        machine = self._login_machine
        if machine is None:  # no user has logged in since boot
            return ()
        found = ((name, machine.services.find(name)) for name in names)
        return tuple(name for name, one in found if one is not None and one.state == "STOPPED")

    async def shut_down(self) -> None:
        """An orderly shutdown. First the kubelet terminates its pods, if graceful node shutdown is
        configured. On Windows, services then get the time that the registry configures
        (WaitToKillServiceTimeout). The power stays on.
        """
        if self._kubelet is not None and self.programs.notified_of_shutdown("kubelet"):
            await self._kubelet.shut_down()
        machine, runtime = self.machine, self.runtime
        if not isinstance(machine, WindowsHost) or not isinstance(runtime, SimRuntime):
            return
        seconds = shutdown_seconds(machine.registry)
        if self._login_machine is not None:
            await self._login_machine.shut_down(seconds)
        else:
            await self.programs.lose_power()
            await runtime.shut_down(seconds)

    async def power_off(self) -> None:
        """Power loss: the kubelet reports nothing, and everything on the node ends."""
        await self.programs.lose_power()
        if isinstance(self.runtime, SimRuntime):
            self.runtime.core.system_ports.shut_down()
        self.machine.reboot()
        self.cluster.cloud.forget_mappings(self.spec.name)
        self.network.power_off()
        self.spec = replace(self.spec, stopped=True)

    def close(self) -> None:
        """Frees the kubelet's port of this machine."""
        self._kubelet = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def delete_certificates(self) -> None:
        """Another node of this name may get a different address."""
        shutil.rmtree(self._certificates, ignore_errors=True)

    # ---- Node object ----

    def use_pod_cidr(self, cidr: str) -> None:
        """Applies the pod CIDR of the node's Node object."""
        network = self.network
        network.pods.use(cidr)
        if network.is_on and network.started != cidr:
            self.programs.start_network(cidr)
        if self.kubelet is not None:
            self.kubelet.agent.changed()

    @property
    def restricted_labels(self) -> dict[str, str]:
        """Labels that a kubelet must not set on itself; the cluster's creator sets them, as kubeadm
        does.
        """
        labels = self.spec.labels.items()
        return {key: value for key, value in labels if key.startswith(_RESTRICTED_LABELS)}

    def publish_network(self, node: str) -> None:
        """Writes flannel's annotations and condition to a Node."""
        if self.network.annotations:
            annotations = self.network.annotations
            self.cluster.spawn_if_running(lambda: self._publish_network(node, annotations))

    async def _publish_network(self, node: str, annotations: Mapping[str, str]) -> None:
        client, now = self.cluster.admin, rfc3339(self.cluster.clock.time())
        condition = {**CONDITION, "lastHeartbeatTime": now, "lastTransitionTime": now}
        metadata = {"metadata": {"annotations": annotations}}
        status = {"status": {"conditions": [condition]}}
        try:
            await client.patch(NODES, "", node, metadata, STRATEGIC_PATCH)
            await client.patch(NODES, "", node, status, STRATEGIC_PATCH, subresource="status")
        except ApiError as problem:
            log.warning("the network of node %s cannot be published: %s", node, problem)

    # ---- the kubelet's settings ----

    def kubelet_settings(self) -> KubeletConfig:
        """The kubelet's settings at boot, before they become a command line."""
        spec, cluster = self.spec, self.cluster
        release = releases.parse_release_version(self.kubelet_version)
        second = self.network.address6 if kubelet_has(release, "DualStackNodeIps") else ""
        usual = self.rules.default_eviction(release)
        eviction, image_gc = eviction_thresholds(spec, self.engine, usual)
        labels = spec.labels.items()
        return self.rules.as_guided(
            KubeletConfig(
                node_name=spec.name,
                node_ip=self.network.address,
                secondary_node_ip=second,
                version=self.kubelet_version,
                max_pods=spec.max_pods,
                node_labels={k: v for k, v in labels if not k.startswith(_RESTRICTED_LABELS)},
                register_with_taints=spec.taints,
                cluster_dns=(cluster.service_ip(10),),
                kube_reserved=spec.kube_reserved,
                system_reserved=spec.system_reserved or {},
                eviction_soft=spec.eviction_soft,
                eviction_hard=eviction,
                image_gc_high_threshold_percent=image_gc,
                image_gc_low_threshold_percent=min(80, image_gc - 1),
                eviction_soft_grace_period=spec.eviction_soft_grace_period,
                feature_gates={
                    **cluster_gates(cluster.settings.feature_gates, release),
                    **spec.feature_gates,
                },
                pod_infra_image=configured_pause_image(cluster, spec),
                windows_priorityclass=spec.priority_class or DEFAULT_PRIORITY_CLASS,
            )
        )

    def kubelet_defaults(self) -> KubeletConfig:
        """The defaults of a kubelet without flags on this machine."""
        guided = self.rules.as_guided(KubeletConfig("", ""))
        release = Release(*releases.parse_release_version(self.kubelet_version))
        # Without the flag, the runtime reports the image of sandboxes.
        reported = not kubelet_accepts(release, "pod-infra-container-image")
        return KubeletConfig(
            pod_infra_image=configured_pause_image(self.cluster, self.spec) if reported else "",
            node_name=self.spec.name,
            node_ip=self.network.address,
            version=self.kubelet_version,
            root_dir=guided.root_dir,
            pod_logs_dir=guided.pod_logs_dir,
            **configuration_settings(self.spec.kubelet_config),
        )

    def kubelet_socket(self) -> socket.socket | None:
        if self._listener is None and self._listens():
            self._listener = socket.create_server(("127.0.0.1", 0))
        return self._listener.dup() if self._listener is not None else None

    @property
    def kubelet_port(self) -> int:
        """The port of this machine where the kubelet listens, 0 for none."""
        return self._listener.getsockname()[1] if self._listener is not None else 0

    @property
    def kubelet_certificate(self) -> Path:
        return self._certificates / "kubelet.crt"

    @property
    def _certificates(self) -> Path:
        return self.cluster.settings.state / "nodes" / self.spec.name

    def kubelet_tls(self) -> ssl.SSLContext:
        name, authority = self.spec.name, self.cluster.authority
        certificate, key = self.kubelet_certificate, self._certificates / "kubelet.key"
        if not pki.is_fresh(certificate, key, authority.ca):
            make_private(self._certificates)
            names, addresses = [name, "localhost"], [*self.network.addresses, "127.0.0.1"]
            ca = pki.load_key_pair(authority.ca, authority.ca_key)
            issued = pki.issue_server(ca, f"system:node:{name}", names, addresses)
            pki.save_key_pair(issued, certificate, key)
        return server_context(certificate, key, authority.ca)

    # ---- the machine ----

    async def start_runtime(self) -> None:
        """Lets a real runtime find its containers again; the node needs its pod CIDR for that."""
        if self._start_runtime is not None:
            await self.cluster.nodes.synced()
            await self._start_runtime()

    def login_machine(self) -> LoginMachine | None:
        """A simulated machine as its programs see it: created at the first login, and kept while
        the node exists.
        """
        machine, runtime = self.machine, self.runtime
        if not isinstance(runtime, SimRuntime):
            return None
        self.programs.attach()
        if not isinstance(machine, WindowsHost):
            if self._linux_machine is None:
                self.programs.install_units()
                self._linux_machine = units.LinuxMachine(self.programs, runtime)
            return self._linux_machine
        if self._login_machine is not None:
            self._login_machine.refresh()
        else:
            name, fabric = self.spec.name, self.cluster.network.fabric
            machine.registry.provide(rf"HKLM\{STORES}", self._certificate_stores)
            self._login_machine = login_machine.WindowsMachine(
                machine,
                machine.clock,
                self.programs,
                lambda: fabric.refresh_node(name),
                self.spec.runtime,
                runtime,
            )
        return self._login_machine

    def windows_login_machine(self) -> WindowsMachine | None:
        """The same for a Windows machine: HostProcess containers run on it."""
        found = self.login_machine()
        return found if found is self._login_machine else None

    def _certificate_stores(self) -> Hive:
        """The cluster's authority, and the kubelet's serving certificate."""
        own = self.kubelet_certificate
        files = {"Root": self.cluster.authority.ca, "My": own}
        found = {
            store: pem_certificates(path.read_bytes())
            for store, path in files.items()
            if path.exists()
        }
        return provided_stores(found)

    def change(self, spec: NodeSpec, *, flex: bool) -> None:
        """Applies the settings that can change while a node runs; takes effect immediately."""
        self.spec = spec
        self._apply_faults()
        if flex:
            self.install_flex_drivers()

    def _apply_faults(self) -> None:
        """Applies the faults in the machine's specification."""
        if self.spec.windows:
            windows_machine(self.machine).hns.allow_mac_spoofing(self.spec.mac_spoofing)
            csi_proxy.install_csi_proxy(self.machine.files, self.spec.csi_proxy)
        if isinstance(self.runtime, SimRuntime):
            self.runtime.proxy = self.spec.proxy

    def install_flex_drivers(self) -> None:
        """Runs once, when the node is created; later changes to the files stay."""
        if self.spec.windows and self.simulated:
            flex_drivers.install_flex_driver_files(self.machine.files, self.spec.flex_drivers)

    def check_deletable(self, hint: str) -> None:
        if is_control_plane(self.spec):
            name = self.spec.name
            raise UserError(
                f"node {name!r} runs the control plane, without which there is no cluster", hint
            )


def configured_pause_image(cluster: ClusterAccess, spec: NodeSpec) -> str:
    return pause_image(cluster.settings, spec) or default_pause_image(spec.build)
