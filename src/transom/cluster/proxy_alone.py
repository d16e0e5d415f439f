"""`transom proxy`: kube-proxy alone, against the API server of any kubeconfig.

For a Linux node it programs nftables in the network namespace that it runs in, or says what it would. There is no Windows
here, so for a Windows node it works out, on an emulated one, what its host networking service would be told.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import random
import shutil
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from transom.client.api import Client, is_not_found
from transom.client.http import HttpClient
from transom.client.informer import InformerFactory
from transom.client.kubeconfig import KubeconfigError, load
from transom.client.resources import NODES, GroupVersionResource
from transom.cluster.alone import until_signal
from transom.cluster.errors import ClusterError
from transom.http.server import HttpServer, listen
from transom.kit.clock import Clock, RealClock, VirtualClock
from transom.machinery.errors import ApiError
from transom.network import nft
from transom.network.api import Accept
from transom.network.nft_text import difference, render, snapshot
from transom.network.stacks import Fabric, Link, Stack
from transom.proxy import config as settings
from transom.proxy.config import ConfigError, Os, ProxyConfig, host_port
from transom.proxy.healthcheck import ProxierHealth, ServiceHealth
from transom.proxy.metrics import MetricsHandler, ProxyMetrics
from transom.proxy.server import SELECTOR, SLICES, USER_AGENT, SyncRunner, feed
from transom.proxy.tracker import Tracker
from transom.proxy.winkernel import emulated
from transom.proxy.winkernel.proxier import WinkernelProxier
from transom.windows.records import Release
from transom.windows.releases import DEFAULT

log = logging.getLogger("transom.proxy")

_MACHINE: Final = "machine"
_OVERLAY_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Alone:
    kubeconfig: Path | None = None
    context: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)  # as kube-proxy has them
    config: Path | None = None
    release: Release = DEFAULT  # of a Windows node's kube-proxy


def run(wanted: Alone) -> None:
    """Until SIGTERM or SIGINT."""
    _with_client(wanted, lambda proxy: until_signal(proxy.run))


def print_once(wanted: Alone) -> str:
    """What the node would be told now."""
    out: list[str] = []

    async def once(proxy: _Proxy) -> None:
        out.append(await proxy.once())

    _with_client(wanted, once)
    return out[0]


def cleanup() -> None:
    """Takes the rules away again."""
    _need_nft()
    script = "".join(f"add table {family} transom-proxy\ndelete table {family} transom-proxy\n" for family in ("ip", "ip6"))
    problem = asyncio.run(_nft(script))
    if problem:
        raise ClusterError(f"nft refused to take the rules away: {problem}")


def _with_client(wanted: Alone, work: Callable[[_Proxy], Awaitable[None]]) -> None:
    try:
        config = settings.from_flags(wanted.flags, wanted.config)
        target = load(wanted.kubeconfig or (Path(config.kubeconfig) if config.kubeconfig else None), wanted.context)
    except ConfigError as problem:
        raise ClusterError(str(problem), "see docs/kube-proxy.md for what each setting means") from problem
    except (KubeconfigError, OSError, ValueError) as problem:
        raise ClusterError(str(problem)) from problem
    clock = RealClock()

    async def main() -> None:
        client = HttpClient(target, clock, user_agent=USER_AGENT)
        try:
            await work(_Proxy(client, config, wanted.release, clock))
        except ConfigError as problem:
            raise ClusterError(str(problem)) from problem
        except ApiError as problem:
            raise ClusterError(str(problem)) from problem
        except OSError as problem:
            raise ClusterError(f"the API server at {target.host}:{target.port} does not answer: {problem}") from problem
        finally:
            await client.close()

    import uvloop

    from transom.cluster.run import tune_process

    tune_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


class _Proxy:
    """Finds out which node it is for and what that node needs."""

    def __init__(self, client: Client, config: ProxyConfig, release: Release, clock: Clock) -> None:
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
            tracker = Tracker("slices")
            await self._feed(tracker, stack)
            _, machine = _machine(self._name)
            proxier = _nftables(tracker, self._name, machine, self._config)
            proxier.sync()
            return "".join(render(table) for table in machine.tables.values())

    async def run(self) -> None:
        _, kind = await self._node()
        if kind == "windows":
            raise ClusterError(
                f"{self._name} is a Windows node, and this is no Windows",
                "--output hns prints what its host networking service would be told; `transom up` has emulated nodes",
            )
        _need_nft()
        settings.linux_mode(self._config.mode)
        async with AsyncExitStack() as stack:
            await self._linux(stack)

    # ---- Linux ---------------------------------------------------------------------------------------------------

    async def _linux(self, stack: AsyncExitStack) -> None:
        config = self._config
        tracker = Tracker("slices")
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
        runner = SyncRunner(sync, self._clock, shortest=config.min_sync_period, longest=config.sync_period)
        tracker.listeners.append(lambda _names: metrics.queued())
        tracker.listeners.append(runner.changed)
        log.info("proxying for the node %s", self._name)
        await runner.loop()

    async def _feed(self, tracker: Tracker, stack: AsyncExitStack) -> None:
        informers = InformerFactory(self._client, self._clock, random.SystemRandom())
        synced = feed(tracker, informers, label_selector=SELECTOR, slices=await self._slices())
        informers.start()
        stack.push_async_callback(informers.stop)
        await synced()

    async def _slices(self) -> GroupVersionResource:
        """In a version that the server has: v1 is there since 1.21, v1beta1 until 1.24."""
        group = await self._client.get_json(f"/apis/{SLICES.group}")
        versions = {each.get("version") for each in group.get("versions") or ()}
        return next((SLICES.at(version) for version in ("v1", "v1beta1") if version in versions), SLICES)

    # ---- Windows -------------------------------------------------------------------------------------------------

    async def _windows(self, node: Mapping[str, Any] | None) -> str:
        config = self._config
        if settings.windows_mode(config.mode or "kernelspace") != "kernelspace":
            raise ClusterError(
                "the user space mode listens on the node itself, and there is none",
                "leave --proxy-mode out, or say kernelspace",
            )
        overlay = bool(config.source_vip)
        network = config.network_name or os.environ.get("KUBE_NETWORK") or emulated.usual_network(overlay)
        others = (await self._client.list(NODES)).items
        hns = emulated.make_hns(self._name, node, others, network, overlay)
        options = config.winkernel({"KUBE_NETWORK": network}, node_ip=emulated.node_ip(node), release=self._release)
        async with AsyncExitStack() as stack:
            tracker = Tracker("slices" if options.slices else "endpoints")
            await self._feed(tracker, stack)
        emulated.add_pods(hns, network, self._name, tracker)
        clock = VirtualClock()  # nobody has to wait for a network that is there
        proxier = WinkernelProxier(tracker, self._name, hns, options, clock)
        for _ in range(2):
            proxier.sync()
            clock.advance(_OVERLAY_SECONDS)
        if proxier.failed:
            raise ClusterError(proxier.failed)
        return json.dumps(emulated.shown(hns), indent=2) + "\n"

    async def _node(self) -> tuple[Mapping[str, Any] | None, Os]:
        node: Mapping[str, Any] | None = None
        try:
            node = await self._client.get(NODES, "", self._name)
        except ApiError as problem:
            if not is_not_found(problem):
                raise
            log.warning("Failed to retrieve node info: nodes %r not found", self._name)
        kind: Os = "windows" if emulated.is_windows(node) or self._config.mode == "kernelspace" else "linux"
        settings.check(self._config, kind)
        return node, kind


def _nftables(tracker: Tracker, name: str, machine: Stack, config: ProxyConfig) -> Any:
    from transom.proxy.nftables.proxier import NftablesProxier, Options

    options = Options(
        cluster_cidrs=tuple(cidr.strip() for cidr in config.cluster_cidr.split(",") if cidr.strip()),
        masquerade_all=config.masquerade_all,
        masquerade_bit=config.masquerade_bit,
        node_port_addresses=config.node_port_addresses,
    )
    return NftablesProxier(tracker, name, machine, options)


# ---- the machine -----------------------------------------------------------------------------------------------------


def _machine(name: str) -> tuple[Fabric, Stack]:
    fabric = Fabric()
    machine = fabric.add(name, "node", "linux")
    machine.add_link(Link(_MACHINE, "ethernet"))
    _set_addresses(machine)
    return fabric, machine


def _set_addresses(machine: Stack) -> None:
    """Those of the network namespace that this process is in."""
    link = machine.links[_MACHINE]
    found = [ipaddress.ip_interface(address) for address in own_addresses()]
    if found != link.addresses:
        link.addresses[:] = found


def own_addresses(proc: Path = Path("/proc/net")) -> list[str]:
    """Without loopback addresses and those of links only."""
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
    return [str(address) for address in parsed if not (address.is_loopback or address.is_link_local)]


def _need_nft() -> None:
    if os.geteuid() != 0:
        raise ClusterError("only root may program nftables", "--output nft prints the rules instead")
    if shutil.which("nft") is None:
        raise ClusterError("there is no nft on this machine", "install nftables; --output nft prints the rules")


async def _nft(script: str) -> str:
    """Empty, or why the kernel did not take it."""
    return await _command("nft", "-f", "-", text=script)


async def _command(*command: str, text: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate(text.encode())
    return "" if process.returncode == 0 else said.decode(errors="replace").strip() or f"{command[0]} ended with an error"


async def _forget_flows(proxier: Any) -> None:
    """Datagrams go on to where their first one went, until the connection tracker is told otherwise."""
    tool = shutil.which("conntrack")
    while proxier.stale_udp:
        flow = proxier.stale_udp.popleft()
        if tool is not None:
            problem = await _command(tool, "-D", *flow.arguments())
            if problem and "0 flow entries" not in problem:
                log.warning("conntrack -D %s: %s", " ".join(flow.arguments()), problem)


class _Tables:
    """Brings tables into the kernel, as differences to what was brought before."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._applied: dict[str, nft.Table] = {}
        self._pending: dict[str, None] = {}

    def changed(self, _stack: Stack, what: str, name: str) -> None:
        if what == "table":
            self._pending[name] = None

    async def apply(self) -> bool:
        pending, self._pending = self._pending, {}
        now = {key: snapshot(self._stack.tables[key]) for key in pending if key in self._stack.tables}
        script = "".join(difference(self._applied.get(key), now.get(key)) for key in pending)
        if not script:
            return True
        problem = await _nft(script)
        for key in pending:
            self._applied.pop(key, None)
        if problem:
            log.error("nft refused the rules, they are made anew with the next sync: %s", problem)
            self._pending = {**pending, **self._pending}
            return False
        self._applied.update(now)
        return True


class _MachinePlane:
    """Sockets of the machine itself, as far as health checks need them."""

    def listen(self, address: str, port: int, accept: Accept) -> Callable[[], None]:
        sockets = listen([address or "0.0.0.0"], port)
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
