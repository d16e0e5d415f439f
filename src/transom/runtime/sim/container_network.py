"""`NetworkAccess` of programs in simulated containers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from transom.machines.api import Files
from transom.machines.windows.host import WindowsHost
from transom.machines.windows.registry import WindowsRegistry
from transom.machines.windows.system import changed_name_servers
from transom.network.api import Accept, DnsConfig, PortMapping, Respond
from transom.network.resolver import Resolver
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.records import SimContainer
from transom.runtime.sim.resolve import answering_address, connect_by_name
from transom.runtime.sim.sockets import NetworkNamespace
from transom.userland.api import OpenSocket, StackView
from transom.userland.dns import resolve_name, resolver_settings
from transom.userland.network_view import NetworkView, endpoint_dns, without_stack

_LOW_PORTS = 1024


def _no_owner(_address: str) -> None:
    """Without network stacks, no address has a known owner."""
    return


class ContainerNetwork:
    __slots__ = ("_closers", "_container", "_core", "_files", "_pid", "_ready_delay")

    def __init__(
        self,
        core: SimCore,
        container: SimContainer,
        closers: list[Callable[[], None]],
        ready_delay: float,
        files: Callable[[], Files],
        pid: int,
    ) -> None:
        """`closers` are called when the program ends; `ready_delay` delays connections to a new
        listener.
        """
        self._core = core
        self._container = container
        self._closers = closers
        self._ready_delay = ready_delay
        self._files = files
        self._pid = pid

    @property
    def hostname(self) -> str:
        return self._core.hostname_in(self._container.sandbox)

    @property
    def ips(self) -> Sequence[str]:
        namespace = self._container.sandbox.namespace
        return namespace.addresses if namespace is not None else ()

    @property
    def given_dns(self) -> DnsConfig:
        """The network's own addresses, before changes by an administrator."""
        given, core = self._container.sandbox.config.dns, self._core
        if isinstance(core.host, WindowsHost) and core.stacks is not None:
            stack = core.stacks.stack(self._container.sandbox.id)
            given = endpoint_dns(core.host.hns, stack, given)
        return given

    @property
    def dns(self) -> DnsConfig:
        system = self._container.system
        if system is None or not changed_name_servers(system.registry):
            return self.given_dns
        return self.view(system.registry).resolver_dns()

    def view(self, registry: WindowsRegistry) -> NetworkView:
        core, sandbox, host = self._core, self._container.sandbox, self._core.host
        found = core.stacks.stack(sandbox.id) if core.stacks is not None else None
        return NetworkView(
            found or without_stack(sandbox.id, self.ips),
            host.hns if isinstance(host, WindowsHost) else None,
            self.given_dns,
            core.stacks.owner if core.stacks is not None else _no_owner,
            machine=False,
            registry=registry,
        )

    @property
    def ports(self) -> Sequence[PortMapping]:
        return self._container.config.ports

    @property
    def _namespace(self) -> NetworkNamespace:
        namespace = self._container.sandbox.namespace
        assert namespace is not None, "a container runs in a ready sandbox"
        return namespace

    def listen(self, port: int, accept: Accept, address: str = "") -> Callable[[], None]:
        if 0 < port < _LOW_PORTS and not self._may_bind_low(port):
            raise PermissionError(13, "Permission denied")
        close = self._namespace.listen(port, accept, address, self._ready_delay, self._pid)
        self._closers.append(close)
        return close

    def _may_bind_low(self, port: int) -> bool:
        if self._core.windows or self._container.identity.uid == 0:
            return True
        sysctls = self._container.sandbox.config.linux.sysctls
        return port >= int(sysctls.get("net.ipv4.ip_unprivileged_port_start", _LOW_PORTS))

    def answer(self, port: int, respond: Respond) -> Callable[[], None]:
        close = self._namespace.answer(port, respond, self._pid)
        self._closers.append(close)
        return close

    def sockets(self) -> Sequence[OpenSocket]:
        return self._namespace.sockets()

    def traffic(self) -> tuple[int, int]:
        return self._namespace.received, self._namespace.sent

    def stack_view(self) -> StackView:
        core, sandbox = self._core, self._container.sandbox
        own = "" if sandbox.namespace is core.node_namespace else sandbox.id
        found = core.stacks.stack(own) if core.stacks is not None else None
        owner = core.stacks.owner if core.stacks is not None else _no_owner
        return StackView(found or without_stack(sandbox.id, self.ips, os=core.os), owner)

    async def connect(self, host: str, port: int) -> socket.socket:
        return await connect_by_name(self._namespace, host, port, self.resolve, self._pid)

    async def ask(self, server: str, port: int, payload: bytes) -> bytes:
        if self._core.lookup is not None:
            return await answering_address(self._core.lookup, self.dns)(server, port, payload)
        return await self._namespace.ask(server, port, payload)

    async def echo(self, address: str, patience: float) -> bool:
        return await self._namespace.echo(address, patience)

    async def resolve(self, name: str) -> list[str]:
        own = self.hostname, self.ips
        return await resolve_name(name, self._core.os, self._files, own, self._resolver)

    def _resolver(self) -> Resolver:
        core = self._core
        dns = resolver_settings(core.os, self._files, self.dns)
        return Resolver(core.os, dns, core.host.clock, core.rng, self.ask, self.connect)
