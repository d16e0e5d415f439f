"""kube-proxy.exe: from a command line to a proxier on a machine of the fleet, or to the words with which it refuses.

One that was started by somebody follows each change, and what it says is in its log; the one that a node has since boot is
brought up to date when somebody looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import yaml

from transom.cluster.binaries_client import refused
from transom.cluster.binaries_start import UNUSED, BadKubeconfig, Ended, Running, Start, fatal
from transom.cluster.flags import gates
from transom.cluster.flags import kube_proxy as flags
from transom.cluster.flags.golang import FlagError, usage
from transom.cluster.nodelog import ERROR, FATAL, WARNING, Lines, NodeLog
from transom.kit.logs import OwnLogger
from transom.kubelet.os_windows import RULES
from transom.machinery.field import go_quote
from transom.network.api import OnStack
from transom.proxy import config as settings
from transom.proxy.config import ConfigError, ProxyConfig
from transom.proxy.server import SyncRunner
from transom.proxy.tracker import Tracker
from transom.proxy.userspace.proxier import ProxyOnLocalhost, UserspaceProxier
from transom.proxy.winkernel.dualstack import DualStackProxier
from transom.proxy.winkernel.proxier import WinkernelProxier
from transom.windows import releases

if TYPE_CHECKING:
    from transom.cluster.nodenet_windows import WindowsNodeNet

_ALL_DEPRECATED: Final = (
    "WARNING: all flags other than --config, --write-config-to, and --cleanup are deprecated. Please begin using a config file "
    "ASAP."
)
_NO_CLUSTER: Final = (
    "unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined"
)
_TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
Proxier = WinkernelProxier | DualStackProxier | UserspaceProxier


def start(given: Start, *, runs: bool) -> Running:
    """`runs`: there is one on the machine already. Raises Ended."""
    try:
        parsed = flags.parse(given.argv)
    except FlagError as problem:
        given.say(f"Error: {problem}\n{usage('kube-proxy [flags]', flags.TABLE)}\n")
        raise Ended(1) from None
    wanted = flags.wanted(parsed)
    version = given.fleet.settings(given.machine.spec).version
    if wanted.help or wanted.version:
        given.say(f"Kubernetes {version}\n" if wanted.version else usage("kube-proxy [flags]", flags.TABLE))
        raise Ended(0)
    log = given.log(wanted.logging)
    for name, text in sorted(parsed.texts.items()):
        log.info("flags.go:59", f"FLAG: --{name}={go_quote(text)}", 1)
    if wanted.unused:
        log.line(WARNING, "server.go:441", UNUSED % " ".join(f"--{name}" for name in wanted.unused))
    config = _configuration(given, log, wanted)
    if wanted.cleanup:
        raise Ended(0)
    server = _server(given, log, config)
    if runs:
        failed = "simulated: a kube-proxy runs on this node already; two would undo each other's work"
        fatal(log, "server.go:489", failed, code=1)
    if not given.reaches(server):
        return Running(lambda: _unheard(given, log, server), log, wanted.service)
    tracker, proxier, close = _proxier(given, log, config)
    log.info("server.go:650", f"Version: {version} (simulated)")
    return Running(lambda: _life(given, log, config, tracker, proxier), log, wanted.service, close)


def _configuration(given: Start, log: NodeLog, wanted: flags.Wanted) -> ProxyConfig:
    try:
        if wanted.config_file:
            config = settings.read(_file(given, wanted.config_file))
            override = wanted.flags.get("hostname-override", "").strip().lower()
            config = replace(config, hostname_override=override) if override else config
        else:
            log.line(WARNING, "server.go:226", _ALL_DEPRECATED)
            config = settings.from_flags(wanted.flags)
        unknown = gates.unrecognized(config.gates)
        if unknown:
            raise ConfigError(f"failed complete: {unknown}")
        settings.check(config, "windows")
    except ConfigError as problem:
        fatal(log, "server.go:482", str(problem))
    return config


def _file(given: Start, path: str) -> object:
    try:
        return yaml.safe_load(given.files.read(given.path(path)))
    except OSError as problem:
        raise ConfigError(f"failed complete: {RULES.file_error('open', path, problem)}") from None
    except yaml.YAMLError as problem:
        raise ConfigError(f"failed complete: {str(problem).partition(chr(10))[0]}") from None


def _server(given: Start, log: NodeLog, config: ProxyConfig) -> str:
    if not config.kubeconfig:
        log.info("server.go:565", "Neither kubeconfig file nor master URL was specified. Falling back to in-cluster config.")
        inside = given.variable("KUBERNETES_SERVICE_HOST") and given.variable("KUBERNETES_SERVICE_PORT")
        missing = f"open {_TOKEN}: The system cannot find the path specified." if inside else _NO_CLUSTER
        fatal(log, "server.go:489", missing, code=1)
    try:
        return given.server(config.kubeconfig)
    except BadKubeconfig as problem:
        fatal(log, "server.go:489", str(problem), code=1)


# ---- what it does ----------------------------------------------------------------------------------------------------


def _proxier(given: Start, log: NodeLog, config: ProxyConfig) -> tuple[Tracker, Proxier, Callable[[], None]]:
    from transom.cluster.nodenet_windows import WindowsNodeNet

    net = given.machine.network
    assert isinstance(net, WindowsNodeNet)
    name = config.hostname_override or given.machine.spec.name
    logger = lines(log)
    net.stop_proxy()
    mode = settings.windows_mode(config.mode)
    tracker, proxier = (_kernel if mode == "kernelspace" else _userspace)(given, net, log, config, name, logger)

    def close() -> None:
        if net.proxier is proxier:
            net.stop_proxy()

    net.use_proxier(proxier, proxier.close)
    return tracker, proxier, close


def lines(log: NodeLog) -> logging.Logger:
    """For one proxier: what it logs are lines of its program, and part of the cluster's log as ever."""
    logger = OwnLogger("transom.proxy")
    tie(logger, log)
    return logger


def tie(logger: logging.Logger, log: NodeLog) -> None:
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
    logger.addHandler(Lines(log, logger.parent))
    logger.setLevel(logging.DEBUG)
    logger.propagate = False


def _kernel(
    given: Start, net: WindowsNodeNet, log: NodeLog, config: ProxyConfig, name: str, logger: logging.Logger
) -> tuple[Tracker, Proxier]:
    log.info("server_windows.go:107", "Using Kernelspace Proxier.")
    address = given.fleet.node_address(name)
    if not address:
        log.line(WARNING, "node.go:129", f'Failed to retrieve node info: nodes "{name}" not found')
    release = releases.parse(given.fleet.settings(given.machine.spec).version)
    options = config.winkernel(_variables(given), node_ip=address, release=release)
    tracker = net.shared.slices if options.slices else net.shared.endpoints
    if not options.slices:
        given.fleet.network.follow_endpoints()
    clock = net.shared.clock
    if config.gates.get("IPv6DualStack", False):
        log.info("server_windows.go:110", "creating dualStackProxier for Windows kernel.")
        two = DualStackProxier(tracker, name, net.hns, options, clock, bind_address=config.bind_address,
                               health=net.service_health(), log=logger)  # fmt: skip
        return tracker, two
    one = WinkernelProxier(tracker, name, net.hns, options, clock, health=net.service_health(), log=logger)
    one.start()  # on overlay networks it waits a while before it goes on, from now
    return tracker, one


def _variables(given: Start) -> Mapping[str, str]:
    return {"KUBE_NETWORK": given.variable("KUBE_NETWORK")}


def _userspace(
    given: Start, net: WindowsNodeNet, log: NodeLog, config: ProxyConfig, name: str, _logger: logging.Logger
) -> tuple[Tracker, Proxier]:
    log.info("server_windows.go:148", "Using userspace Proxier.")
    shared = net.shared
    given.fleet.network.follow_endpoints()
    net.add_userspace_interface()
    try:
        proxier = UserspaceProxier(
            shared.endpoints, name, net.stack, OnStack(shared.dataplane, given.machine.spec.name), shared.clock,
            rng=shared.rng, node_ip=net.address, bind_address=config.bind_address, sync_period=config.sync_period,
            udp_timeout=config.udp_idle_timeout,
        )  # fmt: skip
    except ProxyOnLocalhost as problem:
        fatal(log, "server.go:489", str(problem), code=1)
    return shared.endpoints, proxier


async def _unheard(given: Start, log: NodeLog, server: str) -> int:
    """Nobody answers where its kubeconfig says: it never hears of a service, and tries again for ever."""
    pause = 1.0
    while True:
        for kind, plural in (("Service", "services"), ("Endpoints", "endpoints")):
            url = f'Get "{server}/api/v1/{plural}?limit=500&resourceVersion=0": {refused(server)}'
            log.line(ERROR, "reflector.go:138", f"Failed to watch *v1.{kind}: failed to list *v1.{kind}: {url}")
        await given.machine.host.clock.sleep(pause)
        pause = min(2 * pause, 30.0)


async def _life(given: Start, log: NodeLog, config: ProxyConfig, tracker: Tracker, proxier: Proxier) -> int:
    over = asyncio.Event()

    def sync() -> None:
        proxier.sync()
        if proxier.failed:
            over.set()

    runner = SyncRunner(
        sync, given.machine.network.shared.clock, shortest=config.min_sync_period, longest=config.sync_period,
        due=lambda: proxier.due,
    )  # fmt: skip
    tracker.listeners.append(runner.changed)
    loop = asyncio.ensure_future(runner.loop())
    try:
        waiting = asyncio.ensure_future(over.wait())
        try:
            await asyncio.wait((loop, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if loop.done():
            loop.result()
        log.line(FATAL, "server.go:489", proxier.failed)
        return 1
    finally:
        loop.cancel()
        tracker.listeners.remove(runner.changed)
