"""The kube-proxy program: from its command line to a proxier on a node, or to the message with
which it exits. nftables on Linux; kernel space (HNS) and user space on Windows.

A kube-proxy that was started at boot syncs when the network of its node is read. One that was
started by hand follows each change, because its log shows what it does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import replace
from transom.kit.logs import OwnLogger
from transom.machinery import goyaml
from transom.machinery.releases.kube_proxy import proxy_has
from transom.machines.smallfiles import LARGEST_YAML, read_small_file
from transom.network.api import OnStack
from transom.node.network import RunningProxier
from transom.node.network_windows import WindowsNodeNetwork
from transom.node.programs.flags import gates
from transom.node.programs.flags import kube_proxy as flags
from transom.node.programs.flags.golang import FlagError, flag_usage
from transom.node.programs.listening import ProgramListener
from transom.node.programs.log import ERROR, FATAL, WARNING, ProgramLog, ProgramLogHandler
from transom.node.programs.logged_client import connection_refused_text
from transom.node.programs.start import (
    UNUSED,
    BadKubeconfig,
    ProgramExit,
    ProgramStart,
    StartedProgram,
    exit_fatal,
    log_flags,
)
from transom.proxy import config as proxy_config
from transom.proxy.config import ProxyConfig, ProxyConfigError, usual_mode
from transom.proxy.healthcheck import ProxierHealth
from transom.proxy.metrics import MetricsHandler, ProxyMetrics
from transom.proxy.nftables.proxier import NftablesOptions, NftablesProxier
from transom.proxy.server import SyncRunner
from transom.proxy.winkernel.dualstack import DualStackProxier
from transom.proxy.winkernel.failures import balancer_failure_metrics
from transom.proxy.winkernel.proxier import WinkernelProxier
from transom.windows import releases
from transom.windows.records import Release

if TYPE_CHECKING:
    from transom.proxy.userspace import proxier as userspace_proxier
else:
    userspace_proxier = lazy_import("transom.proxy.userspace.proxier")

_ALL_DEPRECATED: Final = (
    "WARNING: all flags other than --config, --write-config-to, and --cleanup are deprecated. "
    "Please begin using a config file ASAP."
)
_NO_CLUSTER: Final = (
    "unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT "
    "must be defined"
)
_TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"


class RunningInstance(Protocol):
    async def wait(self) -> int:
        """Returns when it has ended."""


def start_kube_proxy(start: ProgramStart, other: RunningInstance | None) -> StartedProgram:
    """`other`: an instance that runs on the node already. Raises ProgramExit."""
    release = _release(start)
    table = flags.kube_proxy_flag_table(release)
    try:
        parsed = flags.parse_kube_proxy_flags(start.argv, release)
    except FlagError as problem:
        start.print(f"Error: {problem}\n{flag_usage('kube-proxy [flags]', table)}\n")
        raise ProgramExit(1) from None
    given = flags.kube_proxy_flags(parsed)
    version = start.node.kubelet_version
    if given.help or given.version:
        start.answer(
            f"Kubernetes {version}\n" if given.version else flag_usage("kube-proxy [flags]", table)
        )
        raise ProgramExit(0)
    log = start.open_log(given.logging)
    log_flags(log, parsed.texts, go_quote)
    if given.unused:
        unused = " ".join(f"--{name}" for name in given.unused)
        log.line(WARNING, "server.go:441", UNUSED % unused)
    config = _configuration(start, log, given)
    if given.cleanup:
        raise ProgramExit(0)
    server = _server(start, log, config)
    if other is not None:
        return _stand_by(start, log, other)
    if not start.reaches(server):
        return StartedProgram(
            log,
            lambda: _retry_forever(start, log, server),
            given.service,
            unreachable=server,
        )
    service = given.service or (
        config.run_as_service and proxy_has(release, "WindowsServiceSetting")
    )
    logger = OwnLogger("transom.proxy")  # so that a node's log has the lines of a single proxier
    if not log.quiet:
        _write_lines_of(logger, log)
    proxier = _make_proxier(start, log, config, logger)
    log.info("server.go:650", f"Version: {version} (simulated)")
    network = start.node.network
    stops = (_serve_healthz(start, log, config), _serve_metrics(start, log, config, proxier))

    def close() -> None:
        for stop in stops:
            stop()
        if network.proxier is proxier:
            network.stop_proxy()

    return StartedProgram(
        log,
        None if start.at_boot else lambda: _follow_changes(start, log, config, proxier),
        service,
        close,
        attach=lambda: _write_lines_of(logger, log),
        server=server,
    )


def _stand_by(start: ProgramStart, log: ProgramLog, other: RunningInstance) -> StartedProgram:
    """A second instance does the same work as the first, with the same result. So it works only
    once the first has ended.
    """
    text = "listen tcp 127.0.0.1:10249: bind: address already in use"
    log.line(ERROR, "server.go:489", f"Failed to start metrics server: {text}")
    log.info("server.go:650", "simulated: another kube-proxy of this node manages its services")
    successor: list[StartedProgram] = []

    async def run() -> int:
        await other.wait()
        started = start_kube_proxy(start, None)
        successor.append(started)
        return await started.run() if started.run is not None else 0

    def close() -> None:
        for started in successor:
            started.close()

    return StartedProgram(log, run, close=close)


def _serve_healthz(start: ProgramStart, log: ProgramLog, config: ProxyConfig) -> Callable[[], None]:
    """Serves /healthz at the node's addresses. The model creates rules when a packet needs them, so
    they are never late.
    """
    host, _, port = config.healthz_bind_address.rpartition(":")
    if not port.isdigit() or port == "0":
        return _nothing_to_stop
    health = ProxierHealth(start.node.network.shared.clock, 2 * config.sync_period)
    health.updated()
    ports = ProgramListener(start.node, "kube-proxy")
    try:
        return ports.serve(host.strip("[]"), int(port), lambda: health.handle)
    except OSError as problem:
        text = f"Failed to start proxier healthz on {config.healthz_bind_address}: {problem}"
        log.line(ERROR, "proxier_health.go:127", text)
        return _nothing_to_stop


def _serve_metrics(
    start: ProgramStart, log: ProgramLog, config: ProxyConfig, proxier: RunningProxier
) -> Callable[[], None]:
    """Serves /metrics and /proxyMode."""
    host, _, port = config.metrics_bind_address.rpartition(":")
    if not port.isdigit() or port == "0":
        return _nothing_to_stop
    usual = usual_mode(_os(start), _release(start))

    def handler() -> MetricsHandler:
        clock = start.node.network.shared.clock
        metrics = ProxyMetrics(proxier.tracker, clock, more=proxier.metrics)
        return MetricsHandler(metrics, config.mode or usual, config.document())

    try:
        return ProgramListener(start.node, "kube-proxy").serve(host.strip("[]"), int(port), handler)
    except OSError as problem:
        text = f"starting metrics server failed: {problem}"
        log.line(ERROR, "server.go:594", text)
        return _nothing_to_stop


def _nothing_to_stop() -> None:
    """There is no server to stop."""


def _write_lines_of(logger: logging.Logger, log: ProgramLog) -> None:
    """The proxier's records are log lines of its program, and still go to the cluster's log."""
    log.attach()
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
    logger.addHandler(ProgramLogHandler(log, logger.parent))
    logger.setLevel(logging.DEBUG)
    logger.propagate = False


# ---- configuration ----


def _configuration(
    start: ProgramStart, log: ProgramLog, given: flags.KubeProxyFlags
) -> ProxyConfig:
    try:
        if given.config_file:
            config = proxy_config.read_proxy_config(_read_file(start, given.config_file))
            override = given.flags.get("hostname-override", "").strip().lower()
            config = replace(config, hostname_override=override) if override else config
        else:
            if not start.at_boot:
                log.line(WARNING, "server.go:226", _ALL_DEPRECATED)
            config = proxy_config.proxy_config_from_flags(given.flags)
        unknown = gates.gate_problem(config.gates, _release(start))
        if unknown:
            raise ProxyConfigError(f"failed complete: {unknown}")
        proxy_config.check_proxy_config(config, _os(start), _release(start))
    except ProxyConfigError as problem:
        exit_fatal(log, "server.go:482", str(problem))
    return config


def _os(start: ProgramStart) -> proxy_config.Os:
    return "windows" if start.node.spec.windows else "linux"


def _release(start: ProgramStart) -> Release:
    return releases.parse_release_version(start.node.kubelet_version)


def _read_file(start: ProgramStart, path: str) -> object:
    try:
        return goyaml.load_yaml(read_small_file(start.files, start.path(path), LARGEST_YAML))
    except OSError as problem:
        reason = start.rules.file_error("open", path, problem)
        raise ProxyConfigError(f"failed complete: {reason}") from None
    except goyaml.YamlError as problem:
        raise ProxyConfigError(f"failed complete: {str(problem).partition(chr(10))[0]}") from None


def _server(start: ProgramStart, log: ProgramLog, config: ProxyConfig) -> str:
    if not config.kubeconfig:
        text = "Neither kubeconfig file nor master URL was specified. Falling back to in-cluster config."
        log.info("server.go:565", text)
        variables = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
        in_cluster = all(start.variable(name) for name in variables)
        no_token = f"open {_TOKEN}: The system cannot find the path specified."
        exit_fatal(log, "server.go:489", no_token if in_cluster else _NO_CLUSTER, code=1)
    try:
        return start.server(config.kubeconfig)
    except BadKubeconfig as problem:
        exit_fatal(log, "server.go:489", str(problem), code=1)


# ---- proxiers ----


def _make_proxier(
    start: ProgramStart, log: ProgramLog, config: ProxyConfig, logger: logging.Logger
) -> RunningProxier:
    network = start.node.network
    name = config.hostname_override or start.node.spec.name
    network.stop_proxy()
    if not isinstance(network, WindowsNodeNetwork):
        proxier = _nftables(start, config, name)
    elif (config.mode or usual_mode("windows", _release(start))) == "kernelspace":
        proxier = _winkernel(start, network, log, config, name, logger)
    else:
        proxier = _userspace(start, network, log, config, name)
    network.use_proxier(proxier)
    return proxier


def _nftables(start: ProgramStart, config: ProxyConfig, name: str) -> RunningProxier:
    network = start.node.network
    tracker = network.shared.slices
    health = network.service_health()
    proxier = NftablesProxier(
        tracker,
        name,
        network.stack,
        NftablesOptions(
            cluster_cidrs=tuple(part for part in config.cluster_cidr.split(",") if part),
            masquerade_all=config.masquerade_all,
            masquerade_bit=config.masquerade_bit,
            node_port_addresses=config.node_port_addresses,
            node_ips=network.addresses,
        ),
    )

    def sync() -> None:
        proxier.sync()
        ports = tracker.health_checks
        health.sync(ports, {service: tracker.local_addresses(service, name) for service in ports})

    return RunningProxier(tracker, proxier, sync, health.close)


def _winkernel(
    start: ProgramStart,
    network: WindowsNodeNetwork,
    log: ProgramLog,
    config: ProxyConfig,
    name: str,
    logger: logging.Logger,
) -> RunningProxier:
    log.info("server_windows.go:107", "Using Kernelspace Proxier.")
    address = start.node.cluster.internal_ip(name)
    if start.at_boot and name == start.node.spec.name:
        address = network.address  # its Node may not have it yet
    if not address:
        text = f'Failed to retrieve node info: nodes "{name}" not found'
        log.line(WARNING, "node.go:129", text)
    options = config.winkernel(
        {"KUBE_NETWORK": start.variable("KUBE_NETWORK")},
        node_ip=address,
        release=_release(start),
    )
    shared = network.shared
    tracker = shared.slices if options.slices else shared.endpoints
    if not options.slices:
        start.node.cluster.network.follow_endpoints()
    health = network.service_health()
    proxier: WinkernelProxier | DualStackProxier
    if config.gates.get("IPv6DualStack", False):
        log.info("server_windows.go:110", "creating dualStackProxier for Windows kernel.")
        proxier = DualStackProxier(
            tracker,
            name,
            network.hns,
            options,
            shared.clock,
            bind_address=config.bind_address,
            health=health,
            log=logger,
        )
    else:
        proxier = WinkernelProxier(
            tracker, name, network.hns, options, shared.clock, health=health, log=logger
        )
        proxier.start()  # on overlay networks, the wait starts now

    def close() -> None:
        proxier.close()
        health.close()

    return RunningProxier(
        tracker,
        proxier,
        proxier.sync,
        close,
        lambda: proxier.due,
        lambda: proxier.failed,
        proxier.lost_services,
        lambda: balancer_failure_metrics(proxier.failures()),
    )


def _userspace(
    start: ProgramStart,
    network: WindowsNodeNetwork,
    log: ProgramLog,
    config: ProxyConfig,
    name: str,
) -> RunningProxier:
    log.info("server_windows.go:148", "Using userspace Proxier.")
    shared = network.shared
    start.node.cluster.network.follow_endpoints()
    network.add_userspace_interface()
    try:
        proxier = userspace_proxier.UserspaceProxier(
            shared.endpoints,
            name,
            network.stack,
            OnStack(shared.dataplane, start.node.spec.name),
            shared.clock,
            rng=shared.rng,
            node_ip=network.address,
            bind_address=config.bind_address,
            sync_period=config.sync_period,
            udp_timeout=config.udp_idle_timeout,
        )
    except userspace_proxier.ProxyOnLocalhost as problem:
        exit_fatal(log, "server.go:489", str(problem), code=1)
    return RunningProxier(
        shared.endpoints,
        proxier,
        proxier.sync,
        proxier.close,
        lambda: proxier.due,
        lambda: proxier.failed,
    )


# ---- running ----


async def _retry_forever(start: ProgramStart, log: ProgramLog, server: str) -> int:
    """No API server answers at the address in its kubeconfig."""
    pause = 1.0
    while True:
        for kind, plural in (("Service", "services"), ("Endpoints", "endpoints")):
            url = f"{server}/api/v1/{plural}?limit=500&resourceVersion=0"
            problem = f'failed to list *v1.{kind}: Get "{url}": {connection_refused_text(server)}'
            log.line(ERROR, "reflector.go:138", f"Failed to watch *v1.{kind}: {problem}")
        await start.node.machine.clock.sleep(pause)
        pause = min(2 * pause, 30.0)


async def _follow_changes(
    start: ProgramStart, log: ProgramLog, config: ProxyConfig, proxier: RunningProxier
) -> int:
    """Runs until cancelled, or until the proxier fails."""
    failed = asyncio.Event()

    def sync() -> None:
        proxier.sync()
        if proxier.failed():
            failed.set()

    runner = SyncRunner(
        sync,
        start.node.network.shared.clock,
        shortest=config.min_sync_period,
        longest=config.sync_period,
        due=proxier.due,
    )
    proxier.tracker.listeners.append(runner.changed)
    loop = asyncio.ensure_future(runner.loop())
    try:
        waiting = asyncio.ensure_future(failed.wait())
        try:
            await asyncio.wait((loop, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if loop.done():
            loop.result()
        log.line(FATAL, "server.go:489", proxier.failed())
        return 1
    finally:
        loop.cancel()
        proxier.tracker.listeners.remove(runner.changed)
