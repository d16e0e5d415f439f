"""`transom proxy`: kube-proxy alone, against the API server of any kubeconfig.

For a Linux node it programs nftables in its own network namespace, or prints the rules. For a
Windows node it uses an emulated one to compute what the host networking service would get.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import random
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from transom.client.api import is_not_found
from transom.client.http import HttpClient
from transom.client.informer import InformerFactory
from transom.client.kubeconfig import KubeconfigError, load_kubeconfig
from transom.client.negotiation import NegotiatingClient
from transom.client.resources import NODES
from transom.http.server import HttpServer, listen_sockets
from transom.kit.clock import Clock, RealClock, VirtualClock
from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass
from transom.kit.process import run_event_loop, run_until_signal
from transom.kit.programs import call_program
from transom.kit.trust import find_program
from transom.kit.user_errors import UserError
from transom.machinery.errors import ApiError
from transom.network import nft
from transom.network.api import Accept
from transom.network.nft_text import nft_difference, nft_snapshot, render_nft_table
from transom.network.stacks import Fabric, NetworkLink, NetworkStack
from transom.proxy import config as settings
from transom.proxy.config import Os, ProxyConfig, ProxyConfigError, host_port
from transom.proxy.healthcheck import ProxierHealth, ServiceHealth
from transom.proxy.metrics import MetricsHandler, ProxyMetrics
from transom.proxy.server import SELECTOR, SLICES, USER_AGENT, SyncRunner, feed_proxier
from transom.proxy.tracker import ServiceTracker
from transom.proxy.winkernel import emulated
from transom.proxy.winkernel.proxier import WinkernelProxier
from transom.windows.records import Release
from transom.windows.releases import DEFAULT

if TYPE_CHECKING:
    from transom.proxy.nftables import proxier as nftables_proxier
else:
    nftables_proxier = lazy_import("transom.proxy.nftables.proxier")

log = logging.getLogger("transom.proxy")

_MACHINE: Final = "machine"
_OVERLAY_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class KubeProxyOptions:
    kubeconfig: Path | None = None
    context: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)  # kube-proxy's own flags
    config: Path | None = None
    release: Release = DEFAULT  # of a Windows node's kube-proxy


def run_kube_proxy(options: KubeProxyOptions) -> None:
    """Runs until SIGTERM or SIGINT."""
    _with_client(options, lambda proxy: run_until_signal(proxy.run))


def print_proxy_rules(options: KubeProxyOptions) -> str:
    """Prints the rules that the node would get now."""
    out: list[str] = []

    async def once(proxy: _Proxy) -> None:
        out.append(await proxy.once())

    _with_client(options, once)
    return out[0]


def cleanup_proxy_rules() -> None:
    """Removes the rules."""
    _need_nft()
    script = "".join(
        f"add table {family} transom-proxy\ndelete table {family} transom-proxy\n"
        for family in ("ip", "ip6")
    )
    problem = asyncio.run(_nft(script))
    if problem:
        raise UserError(f"nft refused to take the rules away: {problem}")


def _with_client(options: KubeProxyOptions, work: Callable[[_Proxy], Awaitable[None]]) -> None:
    try:
        config = settings.proxy_config_from_flags(options.flags, options.config)
        target = load_kubeconfig(
            options.kubeconfig or (Path(config.kubeconfig) if config.kubeconfig else None),
            options.context,
        )
    except ProxyConfigError as problem:
        raise UserError(
            str(problem), "see docs/kube-proxy.md for what each setting means"
        ) from problem
    except (KubeconfigError, OSError, ValueError) as problem:
        raise UserError(str(problem)) from problem
    clock = RealClock()

    async def main() -> None:
        client = HttpClient(target, clock, user_agent=USER_AGENT)
        try:
            await work(_Proxy(NegotiatingClient(client, clock), config, options.release, clock))
        except ProxyConfigError as problem:
            raise UserError(str(problem)) from problem
        except ApiError as problem:
            raise UserError(str(problem)) from problem
        except OSError as problem:
            raise UserError(
                f"the API server at {target.host}:{target.port} does not respond: {problem}"
            ) from problem
        finally:
            await client.close()

    run_event_loop(main())


class _Proxy:
    """Determines its node and what that node needs."""

    def __init__(
        self, client: NegotiatingClient, config: ProxyConfig, release: Release, clock: Clock
    ) -> None:
        self._client = client
        self._config = config
        self._release = release
        self._clock = clock
        self._name = config.hostname_override or socket.gethostname().lower()

    async def once(self) -> str:
        node, kind = await self._node()
        if kind == "windows":
            return await self._windows(node)
        async with AsyncExitStack() as stack:
            tracker = await self._tracker()
            await self._feed(tracker, stack)
            _, machine = _machine(self._name)
            proxier = _nftables(tracker, self._name, machine, self._config)
            proxier.sync()
            return "".join(render_nft_table(table) for table in machine.tables.values())

    async def run(self) -> None:
        _, kind = await self._node()
        if kind == "windows":
            raise UserError(
                f"{self._name} is a Windows node, but this machine does not run Windows",
                (
                    "--output hns prints what its host networking service would get; "
                    "`transom up` has emulated nodes"
                ),
            )
        _need_nft()
        settings.linux_mode(self._config.mode)
        async with AsyncExitStack() as stack:
            await self._linux(stack)

    # ---- Linux ----

    async def _linux(self, stack: AsyncExitStack) -> None:
        config = self._config
        tracker = await self._tracker()
        fabric, machine = _machine(self._name)
        tables = _Tables(machine)
        fabric.listeners.append(tables.changed)
        proxier = _nftables(tracker, self._name, machine, config)
        health = ProxierHealth(self._clock, 2 * config.sync_period)
        metrics = ProxyMetrics(tracker, self._clock, health)
        checks = ServiceHealth(self._name, _MachinePlane(), lambda: [""])
        stack.callback(checks.close)
        for bind, handler in (
            (config.healthz_bind_address, health.handle),
            (config.metrics_bind_address, MetricsHandler(metrics, "iptables", config.document())),
        ):
            server = HttpServer(handler, None)
            await server.start(*host_port(bind))
            stack.push_async_callback(server.stop, 0.5)

        async def sync() -> None:
            begun = self._clock.monotonic()
            _set_addresses(machine)
            proxier.sync()
            complete = tracker.initialized and await tables.apply()
            await _forget_flows(proxier)
            ports = tracker.health_checks
            checks.sync(ports, {name: tracker.local_addresses(name, self._name) for name in ports})
            metrics.synced(self._clock.monotonic() - begun, complete=complete)

        await self._feed(tracker, stack)
        runner = SyncRunner(
            sync, self._clock, shortest=config.min_sync_period, longest=config.sync_period
        )
        tracker.listeners.append(lambda _names: metrics.queued())
        tracker.listeners.append(runner.changed)
        log.info("proxying for the node %s", self._name)
        await runner.loop()

    async def _feed(self, tracker: ServiceTracker, stack: AsyncExitStack) -> None:
        informers = InformerFactory(self._client, self._clock, random.SystemRandom())
        synced = feed_proxier(tracker, informers, label_selector=SELECTOR)
        informers.start()
        stack.push_async_callback(informers.stop)
        await synced()

    async def _tracker(self, *, slices: bool = True) -> ServiceTracker:
        """Reads Endpoints if the server has no slices (before 1.17)."""
        return ServiceTracker(
            "slices" if slices and await self._client.serves(SLICES) else "endpoints"
        )

    # ---- Windows ----

    async def _windows(self, node: Mapping[str, Any] | None) -> str:
        config = self._config
        if settings.windows_mode(config.mode or "kernelspace") != "kernelspace":
            raise UserError(
                "the user space mode listens on the node itself, and there is none",
                "omit --proxy-mode, or set it to kernelspace",
            )
        overlay = bool(config.source_vip)
        network = (
            config.network_name or os.environ.get("KUBE_NETWORK") or emulated.usual_network(overlay)
        )
        others = (await self._client.list(NODES)).items
        hns = emulated.make_hns(self._name, node, others, network, overlay)
        options = config.winkernel(
            {"KUBE_NETWORK": network}, node_ip=emulated.node_ip(node), release=self._release
        )
        async with AsyncExitStack() as stack:
            tracker = await self._tracker(slices=options.slices)
            await self._feed(tracker, stack)
        emulated.add_pods(hns, network, self._name, tracker)
        clock = VirtualClock()  # the network exists: no need to wait
        proxier = WinkernelProxier(tracker, self._name, hns, options, clock)
        for _ in range(2):
            proxier.sync()
            clock.advance(_OVERLAY_SECONDS)
        if proxier.failed:
            raise UserError(proxier.failed)
        return json.dumps(emulated.hns_listing(hns), indent=2) + "\n"

    async def _node(self) -> tuple[Mapping[str, Any] | None, Os]:
        node: Mapping[str, Any] | None = None
        try:
            node = await self._client.get(NODES, "", self._name)
        except ApiError as problem:
            if not is_not_found(problem):
                raise
            log.warning("Failed to retrieve node info: nodes %r not found", self._name)
        kind: Os = (
            "windows"
            if emulated.runs_windows(node) or self._config.mode == "kernelspace"
            else "linux"
        )
        settings.check_proxy_config(self._config, kind, self._release)
        return node, kind


def _nftables(
    tracker: ServiceTracker, name: str, machine: NetworkStack, config: ProxyConfig
) -> Any:
    options = nftables_proxier.NftablesOptions(
        cluster_cidrs=tuple(
            cidr.strip() for cidr in config.cluster_cidr.split(",") if cidr.strip()
        ),
        masquerade_all=config.masquerade_all,
        masquerade_bit=config.masquerade_bit,
        node_port_addresses=config.node_port_addresses,
    )
    return nftables_proxier.NftablesProxier(tracker, name, machine, options)


# ---- the machine ----


def _machine(name: str) -> tuple[Fabric, NetworkStack]:
    fabric = Fabric()
    machine = fabric.add(name, "node", "linux")
    machine.add_link(NetworkLink(_MACHINE, "ethernet"))
    _set_addresses(machine)
    return fabric, machine


def _set_addresses(machine: NetworkStack) -> None:
    """Sets the addresses of this process's network namespace."""
    link = machine.links[_MACHINE]
    found = [ipaddress.ip_interface(address) for address in machine_addresses()]
    if found != link.addresses:
        link.addresses[:] = found


def machine_addresses(proc: Path = Path("/proc/net")) -> list[str]:
    """Without loopback and link-local addresses."""
    found: dict[str, None] = {}
    four, six = proc / "fib_trie", proc / "if_inet6"
    if four.exists():
        lines = four.read_text().splitlines()
        for line, after in pairwise(lines):
            if after.strip() == "/32 host LOCAL":
                found[line.split()[-1]] = None
    if six.exists():
        for line in six.read_text().splitlines():
            found[str(ipaddress.ip_address(bytes.fromhex(line.split()[0])))] = None
    parsed = [ipaddress.ip_address(address) for address in found]
    return [
        str(address) for address in parsed if not (address.is_loopback or address.is_link_local)
    ]


def _need_nft() -> None:
    if os.geteuid() != 0:
        raise UserError("only root may program nftables", "--output nft prints the rules instead")
    if find_program("nft") is None:
        raise UserError(
            "there is no nft on this machine", "install nftables; --output nft prints the rules"
        )


async def _nft(script: str) -> str:
    """Empty, or why the kernel rejected it."""
    return await _command("nft", "-f", "-", text=script)


async def _command(*command: str, text: str = "") -> str:
    code, _, output = await call_program(command, input=text.encode())
    return (
        ""
        if code == 0
        else output.decode(errors="replace").strip() or f"{command[0]} ended with an error"
    )


async def _forget_flows(proxier: Any) -> None:
    """Datagrams keep following the path of the first one until their connection tracking entry is
    deleted.
    """
    tool = find_program("conntrack")
    while proxier.stale_udp:
        flow = proxier.stale_udp.popleft()
        if tool is not None:
            problem = await _command(tool, "-D", *flow.arguments())
            if problem and "0 flow entries" not in problem:
                log.warning("conntrack -D %s: %s", " ".join(flow.arguments()), problem)


class _Tables:
    """Applies tables to the kernel, as differences to the previously applied ones."""

    def __init__(self, stack: NetworkStack) -> None:
        self._stack = stack
        self._applied: dict[str, nft.NftTable] = {}
        self._pending: dict[str, None] = {}

    def changed(self, _stack: NetworkStack, what: str, name: str) -> None:
        if what == "table":
            self._pending[name] = None

    async def apply(self) -> bool:
        pending, self._pending = self._pending, {}
        now = {
            key: nft_snapshot(self._stack.tables[key])
            for key in pending
            if key in self._stack.tables
        }
        script = "".join(nft_difference(self._applied.get(key), now.get(key)) for key in pending)
        if not script:
            return True
        problem = await _nft(script)
        for key in pending:
            self._applied.pop(key, None)
        if problem:
            log.error("nft rejected the rules; the next sync writes all of them again: %s", problem)
            self._pending = {**pending, **self._pending}
            return False
        self._applied.update(now)
        return True


class _MachinePlane:
    """The machine's own sockets, as far as health checks need them."""

    def listen(self, address: str, port: int, accept: Accept) -> Callable[[], None]:
        sockets = listen_sockets([address or "0.0.0.0"], port)
        loop = asyncio.get_running_loop()

        def take(server: socket.socket) -> None:
            connection, _ = server.accept()
            connection.setblocking(False)
            accept(connection)

        for each in sockets:
            loop.add_reader(each.fileno(), take, each)

        def close() -> None:
            for each in sockets:
                loop.remove_reader(each.fileno())
                each.close()

        return close
