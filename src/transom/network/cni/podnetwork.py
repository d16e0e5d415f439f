"""The network of one node's pods as runtimes see it: a stack for each sandbox, and the plugins of
the node's configuration.

Implements what docker and containerd do around plugins: namespaces, arguments, capabilities, and
cleanup after a failed plugin. They also run the loopback plugin, which is not needed here: every
stack has its `lo` from the start. On Windows the sandbox's adapter is the HNS endpoint that a
plugin has created.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from transom.machinery.quantity import QuantityError, parse_quantity
from transom.machines.windows.hns import HnsError
from transom.network import winhost
from transom.network.api import NetworkFailure, SandboxNetwork
from transom.network.cni import config, results
from transom.network.cni.config import CniConfigError, NetworkList
from transom.network.cni.plugin import CniError, CniNode, Result
from transom.network.cni.plugins import Table, plugin_table
from transom.network.cni.runner import (
    CniRunner,
    RuntimeConf,
    in_process,
    install_plugins,
    is_plugin_present,
    plugin_missing_text,
)
from transom.network.stacks import NetworkStack

_UNLIMITED = 2**31 - 1
_DEFAULT = ("0.0.0.0/0", "::/0")
UNINITIALIZED = "cni config uninitialized"
WINDOWS_BINARIES = {"docker": r"c:\k\cni", "containerd": r"C:\Program Files\containerd\cni\bin"}


class CniPodNetwork:
    """The reference plugins for Windows have the release that supports the runtime: containerd needs
    the newer one for its namespaces in all modes. `labelled`: errors name the plugin, as those of
    libcni do since 1.0. `joined` is called with every sandbox and its addresses before anything
    runs in it.
    """

    def __init__(
        self,
        machine: CniNode,
        runtime: Literal["docker", "containerd"],
        *,
        labelled: bool = False,
        joined: Callable[[SandboxNetwork, Sequence[str]], None] | None = None,
    ) -> None:
        self.machine = machine
        self._docker = runtime == "docker"
        windows = machine.os == "windows"
        binaries = WINDOWS_BINARIES[runtime] if windows else "/opt/cni/bin"
        self.binaries = binaries
        self.directory = (
            config.LINUX_DIRECTORY
            if not windows
            else config.WINDOWS_DIRECTORY
            if self._docker
            else config.CONTAINERD_WINDOWS_DIRECTORY
        )
        self._plugins = plugin_table(machine.os, "0.9.1" if self._docker else "1.0")
        install_plugins(machine, binaries, self._plugins)
        self._runner = CniRunner(
            machine,
            in_process(machine, binaries, self._plugins),
            lambda kind: _versions(machine, binaries, self._plugins, kind),
            binaries,
            "/var/lib/cni/cache" if self._docker else "/var/lib/cni",
            labelled,
        )
        self._joined = joined
        self._seen: tuple[Any, NetworkList | str] = (None, "")
        self._sandboxes: dict[str, tuple[NetworkList, RuntimeConf]] = {}
        self._requested: tuple[Any, Mapping[str, Any]] = (None, {})
        self._ports: dict[tuple[str, int, str], str] = {}  # protocol, port, address -> sandbox
        self.fault = ""  # if set, the reason why the network does not work
        self.cidr = ""
        self._lost: Callable[[str], None] | None = None
        self._hns_networks: dict[str, set[str]] = {}  # HNS network -> sandboxes
        if machine.hns is not None:
            machine.hns.listeners.append(self._hns_changed)

    def use(self, cidr: str) -> None:
        """Sets the node's pod CIDR once it is known; with dual stack both, comma-separated."""
        self.cidr = cidr

    def on_lost(self, function: Callable[[str], None]) -> None:
        """`function` is called with the id of a sandbox whose HNS network was deleted."""
        self._lost = function

    # ---- configuration ----

    def look_in(self, directory: str, binaries: str) -> None:
        """Sets the directories of configuration and plugins later than at construction, as
        dockershim does; drops what was read before.
        """
        self.directory, self.binaries = directory, binaries
        self._runner = self._runner._replace(
            path=binaries,
            execute=in_process(self.machine, binaries, self._plugins),
            versions=lambda kind: _versions(self.machine, binaries, self._plugins, kind),
        )
        self._seen = (None, "")

    def network(self) -> NetworkList | str:
        """The network of the current files, or why there is none."""
        files = self.machine.files
        try:
            state = config.read_config_files(files, self.directory)
        except OSError as error:
            return str(error.strerror)
        before = self._seen[1]
        if state != self._seen[0]:
            try:
                found = config.load_network_list(
                    files, self.directory, self._runner.problem if self._docker else None
                )
            except CniConfigError as error:
                # dockershim keeps using its previous network as long as any file exists.
                kept = self._docker and state and not isinstance(before, str)
                self._seen = (state, before if kept else str(error))
            else:
                self._seen = (state, found)
        return self._seen[1]

    def file_problem(self) -> str:
        """The problem with the current configuration files, even while an earlier configuration is
        in use.
        """
        try:
            config.load_network_list(self.machine.files, self.directory)
        except CniConfigError as error:
            return str(error)
        except OSError as error:
            return str(error.strerror)
        return ""

    def missing_plugin(self) -> str:
        """A plugin of the current configuration that does not exist; "" if all do."""
        found = self.network()
        if isinstance(found, str):
            return ""
        kinds = [plugin.type for plugin in found.plugins]
        delegates = [plugin.config.get("delegate") for plugin in found.plugins]
        kinds += [str(one["type"]) for one in delegates if isinstance(one, dict) and "type" in one]
        return next(
            (
                plugin_missing_text(kind, self.binaries)
                for kind in kinds
                if not is_plugin_present(self.machine, kind, self.binaries)
            ),
            "",
        )

    def ready(self) -> str:
        return self._problem(self.network())

    def _problem(self, network: NetworkList | str) -> str:
        if self.fault:
            return self.fault
        if isinstance(network, str):
            return UNINITIALIZED
        if self._docker and not self.cidr and "ipRanges" in network.capabilities:
            return "cni config needs ipRanges but no PodCIDR set"
        return ""

    # ---- sandboxes ----

    async def add(
        self, sandbox: SandboxNetwork, extra_args: Mapping[str, str] | None = None
    ) -> list[str]:
        network = self.network()
        problem = self._problem(network)
        if problem or isinstance(network, str):
            raise NetworkFailure(problem)
        there = self.stack(sandbox.sandbox)
        if there is not None:
            return there.addresses()
        capabilities = self._capabilities(sandbox)
        self._open_ports(sandbox)
        try:
            netns = self._namespace(sandbox.sandbox)
            runtime = RuntimeConf(
                sandbox.sandbox,
                netns,
                "eth0",
                {**_args(sandbox), **(extra_args or {})},
                capabilities,
            )
            self._sandboxes[sandbox.sandbox] = network, runtime
            addresses = self._attach(network, runtime)
        except (CniError, HnsError, OSError) as error:
            self._undo(sandbox.sandbox)
            raise NetworkFailure(_failure_text(error)) from error
        if self._joined is not None:
            self._joined(sandbox, addresses)
        return addresses

    def _attach(self, network: NetworkList, runtime: RuntimeConf) -> list[str]:
        stack = self.stack(runtime.container_id)
        assert stack is not None
        if self.machine.os == "windows":
            made: list[str] = []
            result = self._windows_add(network, runtime, made)
            self._plug(stack, made)
        else:
            result = results.to_current(self._runner.add(network, runtime), network.version)
        return [ip["address"].split("/")[0] for ip in result.get("ips") or ()]

    async def restore(self, sandbox: SandboxNetwork, addresses: Sequence[str]) -> list[str]:
        """Restores the addresses of a sandbox that outlived the previous process."""
        network = self.network()
        if isinstance(network, str):
            raise NetworkFailure(self._problem(network))
        gone = RuntimeConf(sandbox.sandbox, "", "eth0", _args(sandbox), self._capabilities(sandbox))
        self._delete(network, gone)  # whatever the node's disk has recorded for it
        return await self.add(sandbox, {"IP": addresses[0]} if addresses else {})

    async def remove(self, sandbox: str) -> None:
        if self.fault and sandbox in self._sandboxes:
            raise NetworkFailure(self.fault)
        known = self._sandboxes.get(sandbox)
        if known is None:
            return
        try:
            self._delete(*known)
        except (CniError, HnsError, OSError) as error:
            raise NetworkFailure(_failure_text(error)) from error
        self._forget(sandbox)

    def status(self, sandbox: str) -> list[str]:
        """What dockershim does on Windows whenever it reads a pod's status: it calls ADD again."""
        network, runtime = self._sandboxes[sandbox]
        try:
            result = results.to_current(self._runner.add(network, runtime), network.version)
        except CniError as error:
            raise NetworkFailure(str(error)) from error
        return [ip["address"].split("/")[0] for ip in result.get("ips") or ()]

    def check(self, sandbox: str) -> None:
        network, runtime = self._sandboxes[sandbox]
        try:
            self._runner.check(network, runtime)
        except CniError as error:
            raise NetworkFailure(str(error)) from error

    def stack(self, sandbox: str) -> NetworkStack | None:
        return self.machine.fabric.stacks.get(f"{self.machine.stack.name}/{sandbox}")

    def _delete(self, network: NetworkList, runtime: RuntimeConf) -> None:
        try:
            self._runner.delete(network, runtime)
        except CniError as error:
            if "no such file or directory" not in str(error):  # it was deleted before
                raise

    def _undo(self, sandbox: str) -> None:
        """Cleans up after a failed ADD. Its own failures are not reported to the caller."""
        known = self._sandboxes.get(sandbox)
        if known is not None:
            with suppress(CniError, HnsError, OSError):
                self._delete(*known)
        self._forget(sandbox)

    def _forget(self, sandbox: str) -> None:
        _, runtime = self._sandboxes.pop(sandbox, (None, None))
        for sandboxes in self._hns_networks.values():
            sandboxes.discard(sandbox)
        self.machine.fabric.remove(f"{self.machine.stack.name}/{sandbox}")
        if runtime is not None:
            self.machine.namespaces.pop(runtime.netns, None)
            if (
                self.machine.hns is not None
                and not self._docker
                and runtime.netns in self.machine.hns.namespaces
            ):
                self.machine.hns.delete("namespace", runtime.netns)
        for key in [key for key, owner in self._ports.items() if owner == sandbox]:
            del self._ports[key]

    # ---- plugin arguments ----

    def _namespace(self, sandbox: str) -> str:
        """Creates the sandbox's stack; returns CNI_NETNS."""
        machine = self.machine
        name = f"{machine.stack.name}/{sandbox}"
        machine.fabric.add(name, "sandbox", machine.os, node=machine.stack.node, sandbox=sandbox)
        if machine.os == "linux":
            path = "/var/run/netns/cni-" + _uuid(sandbox)
        elif self._docker or machine.hns is None:
            return "none"  # the same for all
        else:
            path = str(
                machine.hns.create(
                    "namespace", {"Type": "Host", "SchemaVersion": {"Major": 2, "Minor": 0}}
                )["ID"]
            )
        machine.namespaces[path] = name
        return path

    def _capabilities(self, sandbox: SandboxNetwork) -> Mapping[str, Any]:
        """The same for most pods of a node, so the last one is cached."""
        limits = _bandwidth(sandbox.annotations)
        requested = (tuple(sandbox.ports), sandbox.dns, tuple(limits.items()), self.cidr)
        if requested != self._requested[0]:
            self._requested = requested, self._given(sandbox, limits)
        return self._requested[1]

    def _given(self, sandbox: SandboxNetwork, limits: dict[str, int]) -> Mapping[str, Any]:
        mappings = []
        for port in sandbox.ports:
            if port.host_port > 0:
                mapping = {
                    "hostPort": port.host_port,
                    "containerPort": port.container_port,
                    "protocol": port.protocol.lower(),
                }
                if port.host_ip or not self._docker:
                    mapping["hostIP"] = port.host_ip
                mappings.append(mapping)
        given: dict[str, Any] = {}
        if mappings or self._docker:
            given["portMappings"] = mappings
        if limits:
            given["bandwidth"] = limits
        if self.cidr:
            given["ipRanges"] = [[{"subnet": cidr}] for cidr in self.cidr.split(",")]
        dns = {
            key: list(value)
            for key, value in zip(("servers", "searches", "options"), sandbox.dns, strict=True)
            if value
        }
        if dns and (self.machine.os == "windows" or not self._docker):
            given["dns"] = dns
        return given

    def _open_ports(self, sandbox: SandboxNetwork) -> None:
        """A host port belongs to one sandbox. On Windows HNS enforces this."""
        if self.machine.os == "windows":
            return
        wanted = [
            (p.protocol.lower(), p.host_port, _any(p.host_ip))
            for p in sandbox.ports
            if p.host_port > 0
        ]
        for protocol, port, address in wanted:
            taken = [own for own in self._ports if own[:2] == (protocol, port)]
            if any(not address or not own[2] or own[2] == address for own in taken):
                raise NetworkFailure(
                    f"cannot open hostport {port} for pod {sandbox.pod}_{sandbox.namespace}: "
                    f"listen {protocol}4 {address}:{port}: bind: address already in use"
                )
        for key in wanted:
            self._ports[key] = sandbox.sandbox

    # ---- Windows ----

    def _windows_add(self, network: NetworkList, runtime: RuntimeConf, made: list[str]) -> Result:
        hns = self.machine.hns
        assert hns is not None

        def seen(kind: str, identity: str, what: str) -> None:
            if kind == "endpoint" and what == "created":
                made.append(identity)

        hns.listeners.append(seen)
        try:
            return results.to_current(self._runner.add(network, runtime), network.version)
        finally:
            hns.listeners.remove(seen)

    def _hns_changed(self, kind: str, identity: str, what: str) -> None:
        if kind == "network" and what == "deleted":
            for sandbox in self._hns_networks.pop(identity, ()):
                if self._lost is not None and sandbox in self._sandboxes:
                    self._lost(sandbox)

    def _plug(self, stack: NetworkStack, made: Sequence[str]) -> None:
        """Makes the endpoint the sandbox's adapter."""
        hns = self.machine.hns
        assert hns is not None
        found = [hns.endpoints[identity] for identity in made if identity in hns.endpoints]
        if not found:  # a plugin that reuses an existing endpoint
            owners = {
                stack.sandbox,
                *(path for path, name in self.machine.namespaces.items() if name == stack.name),
            }
            found = [e for e in hns.endpoints.values() if hns.attachment(e["ID"])[1] in owners]
        for number, endpoint in enumerate(found):
            self._hns_networks.setdefault(endpoint["HostComputeNetwork"], set()).add(stack.sandbox)
            link, _ = winhost.sandbox_link(hns, endpoint["ID"])
            if number:
                link.name = f"{link.name} {number + 1}"
            addresses, link.addresses = (
                link.addresses,
                [],
            )  # added afterwards, because each adds a route
            stack.add_link(link)
            for address in addresses:
                stack.add_address(link.name, str(address))
            for gateway in winhost.windows_gateways(hns, endpoint["ID"]):
                stack.replace_route(_DEFAULT[":" in gateway], link.name, gateway)


def _versions(machine: CniNode, binaries: str, plugins: Table, kind: str) -> Sequence[str] | None:
    found = plugins.get(kind)
    return (
        None if found is None or not is_plugin_present(machine, kind, binaries) else found.versions
    )


def _args(sandbox: SandboxNetwork) -> dict[str, str]:
    return {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": sandbox.namespace,
        "K8S_POD_NAME": sandbox.pod,
        "K8S_POD_INFRA_CONTAINER_ID": sandbox.sandbox,
    }


def _bandwidth(annotations: Mapping[str, str]) -> dict[str, int]:
    limits: dict[str, int] = {}
    for direction in ("ingress", "egress"):
        text = annotations.get(f"kubernetes.io/{direction}-bandwidth")
        if text is None:
            continue
        try:
            rate = parse_quantity(text).value()
        except QuantityError as error:
            raise NetworkFailure(
                f"failed to get pod bandwidth from annotations: {error}"
            ) from error
        if not 1000 <= rate <= 10**15:
            size = (
                "resource is unreasonably small (< 1kbit)"
                if rate < 1000
                else "resoruce is unreasonably large (> 1Pbit)"
            )
            raise NetworkFailure(f"failed to get pod bandwidth from annotations: {size}")
        limits |= {f"{direction}Rate": rate, f"{direction}Burst": _UNLIMITED}
    return limits


def _uuid(text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"


def _any(address: str) -> str:
    return "" if address in ("0.0.0.0", "::") else address


def _failure_text(error: CniError | HnsError | OSError) -> str:
    return error.text if isinstance(error, HnsError) else str(error)
