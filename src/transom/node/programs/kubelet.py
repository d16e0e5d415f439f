"""The kubelet program: from its command line to a running kubelet on a node, or to the message with
which it exits. A node starts it this way at boot, and so do users who log in.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Mapping, Sequence
from socket import socket
from types import MappingProxyType
from typing import Final, NoReturn
from urllib.parse import urlsplit

from transom.client.api import ApiClient
from transom.client.events import EventRecorder
from transom.client.metrics import RestClientMetrics
from transom.kit.goquote import go_quote
from transom.kit.lazy_dataclass import replace
from transom.kit.user_errors import UserError
from transom.kubelet import credential_providers
from transom.kubelet.base import DriverFolders, KubeletContext, ProgramOutput, RunProgram
from transom.kubelet.config import CredentialProviderConfig, KubeletConfig
from transom.kubelet.decoding import pod_decoder
from transom.kubelet.features import credential_provider_features
from transom.kubelet.kubelet import BadConfiguration, Kubelet
from transom.kubelet.node import checks
from transom.kubelet.server.server import answer_ping_healthz
from transom.kubelet.static_pods import RealFolder
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.kubelet import kubelet_has
from transom.machinery.releases.metrics import metric_rules
from transom.node.programs.flags import gates, klog
from transom.node.programs.flags import kubelet as flags
from transom.node.programs.flags.golang import FlagError, ParsedFlags, flag_usage
from transom.node.programs.host import ProgramHost
from transom.node.programs.kubelet_config_file import (
    ConfigFileError,
    apply_configuration,
    file_settings,
    read_kubelet_configuration,
)
from transom.node.programs.listening import ProgramListener
from transom.node.programs.log import (
    ERROR,
    FATAL,
    INFO,
    WARNING,
    ProgramLog,
    attach_kubelet_log,
    use_kubelet_log,
)
from transom.node.programs.logged_client import LoggedClient, server_host
from transom.node.programs.start import (
    UNUSED,
    BadKubeconfig,
    ProgramExit,
    ProgramStart,
    StartedProgram,
    exit_failed,
    exit_fatal,
    format_aggregate,
    log_flags,
)
from transom.runtime.sim.engine import SimRuntime
from transom.windows.releases import parse_release_version

log = logging.getLogger("transom.node")

_DOCKER_GONE: Final = (
    "failed to run Kubelet: failed to create kubelet: failed to get docker version: error during "
    'connect: Get "http://%2F%2F.%2Fpipe%2Fdocker_engine/v1.24/version": open '
    "//./pipe/docker_engine: The system cannot find the file specified. In the default daemon "
    "configuration on Windows, the docker client must be run elevated to connect. This error may "
    "also indicate that the docker daemon is not running."
)
_NO_ENDPOINT: Final = (
    "failed to run Kubelet: the container runtime endpoint address was not specified or empty, use "
    "--container-runtime-endpoint to set"
)
_NO_SERVICE: Final = (
    '"Failed to start node shutdown manager" err="kubelet is NOT running as a Windows service"'
)
_PORT_TAKEN: Final = (
    "listen tcp 0.0.0.0:{port}: bind: Only one usage of each socket address (protocol/network "
    "address/port) is normally permitted."
)
_EVENT_VERBOSITY: Final = 3  # events are logged from this verbosity on
_NETWORK_PLUGINS: Final = ("", "cni")
_SCHEMES: Final = ("npipe", "tcp")  # of the addresses of runtimes on Windows


def start_kubelet(start: ProgramStart, *, running: bool) -> StartedProgram:
    """`running`: another kubelet runs on the node. Raises ProgramExit."""
    base = start.node.kubelet_defaults()
    windows = start.node.spec.windows
    try:
        parsed = flags.parse_kubelet_flags(start.argv, base.release, windows=windows)
    except FlagError as problem:
        _refuse_command_line(start, Release(*base.release), problem, _usage(base, windows))
    given = flags.kubelet_flags(parsed, base.release)
    if given.help:
        start.answer(_usage(base, windows))
        raise ProgramExit(0)
    if given.version:
        start.answer(f"Kubernetes {base.version}\n")
        raise ProgramExit(0)
    if not start.at_boot:
        for text in given.deprecated:
            start.print(text + "\n")
    log = start.open_log(given.logging)
    log_flags(log, parsed.texts, go_quote)
    if given.unused and not start.at_boot:
        unused = " ".join(f"--{name}" for name in given.unused)
        log.line(WARNING, "server.go:191", UNUSED % unused)
    try:
        content = read_kubelet_configuration(start, given.config_file, given.config_dir)
        apply_configuration(content, parsed)
        base = replace(base, **file_settings(content))
    except ConfigFileError as problem:
        exit_fatal(log, "server.go:198", str(problem))
    config = _checked_config(start, log, parsed, base)
    log.info("server.go:416", f"Version: {config.version} (simulated)")
    if start.node.spec.windows:
        priority = f"Setting the priority of kubelet process to {config.windows_priorityclass}"
        log.info("init_windows.go:54", priority)
    server = ""
    if given.kubeconfig:
        try:
            server = start.server(given.kubeconfig)
        except BadKubeconfig as problem:
            exit_fatal(
                log, "server.go:271", f"failed to run Kubelet: invalid kubeconfig: {problem}"
            )
    else:
        log.line(WARNING, "server.go:558", "standalone mode, no API client")
    config = replace(config, credential_providers=_credential_providers(start, log, parsed, config))
    _check_runtime(start, log, given, base.release)
    if running:
        exit_fatal(log, "server.go:158", _PORT_TAKEN.format(port=config.port))
    if not given.kubeconfig:
        standalone = "Kubelet is running in standalone mode, will skip API server sync"
        log.info("kubelet.go:404", standalone)
        return StartedProgram(log, _run_standalone, given.service)
    _configure_docker(start, log, given, config)
    return StartedProgram(
        log,
        lambda: _run(start, log, config, server, service=start.at_boot or given.service),
        given.service,
        attach=lambda: attach_kubelet_log(log),
        unreachable="" if start.reaches(server) else server,
        server=server,
    )


# ---- configuration ----


def _usage(base: KubeletConfig, windows: bool) -> str:
    return flag_usage("kubelet", flags.kubelet_flag_table(base.release, windows=windows))


def _refuse_command_line(
    start: ProgramStart, release: Release, problem: FlagError, usage: str
) -> NoReturn:
    """Prints what the release prints about an invalid command line, and exits."""
    log = start.open_log(klog.KlogSettings())
    word = problem.word if isinstance(problem, flags.UnknownCommandError) else ""
    if not kubelet_has(release, "FlagErrorsLogged"):
        start.print(usage)
        exit_fatal(log, "server.go:155", str(problem))
    if not kubelet_has(release, "FlagErrorsReturned"):
        fields = f"err={go_quote(str(problem))}"
        title = "Failed to parse kubelet flag"
        if word:
            fields, title = f"command={go_quote(word)}", "Unknown command"
        log.line(ERROR, "server.go:158", f'"{title}" {fields}')
        start.print(usage)
        raise ProgramExit(1)
    text = f"unknown command {word}" if word else f"failed to parse kubelet flag: {problem}"
    if kubelet_has(release, "FlagErrorsWithoutUsage"):
        exit_failed(log, "run.go:74", f'"command failed" err={go_quote(text)}')
    start.print(f"Error: {text}\n{usage}\n")
    raise ProgramExit(1)


def _checked_config(
    start: ProgramStart, log: ProgramLog, parsed: ParsedFlags, base: KubeletConfig
) -> KubeletConfig:
    try:
        config = flags.kubelet_config_from_flags(parsed, base, start.path)
    except FlagError as problem:
        exit_fatal(log, "server.go:210", str(problem))
    unknown = gates.gate_problem(config.feature_gates, config.release)
    if unknown:
        exit_fatal(log, "server.go:178", unknown)
    problems = checks.check_node_configuration(config, start.rules, start.node.machine)
    if problems:
        exit_fatal(log, "server.go:210", format_aggregate(problems))
    addresses = start.node.network.addresses
    unassigned = [address for address in config.node_ips if address not in addresses]
    for address in unassigned:
        log.line(
            ERROR,
            "kubelet_node_status.go:586",
            "Failed to set some node status fields: failed to validate nodeIP: node IP: "
            f'"{address}" not found in the host\'s network interfaces '
            f"(simulated: {base.node_ip} is used)",
        )
    return replace(config, node_ip=base.node_ip, secondary_node_ip="") if unassigned else config


def _credential_providers(
    start: ProgramStart, log: ProgramLog, parsed: ParsedFlags, config: KubeletConfig
) -> tuple[CredentialProviderConfig, ...]:
    """Both flags are needed."""
    path = parsed.get("image-credential-provider-config", "")
    programs = parsed.get("image-credential-provider-bin-dir", "")
    features = credential_provider_features(config.release, config.feature_gates)
    if not (path and programs and features.versions):
        return ()
    separator = "\\" if start.node.spec.windows else "/"
    try:
        return credential_providers.read_provider_configs(
            start.files, start.path(path), start.path(programs), features, separator
        )
    except credential_providers.ProviderError as problem:
        text = f'"Failed to register CRI auth plugins" err={go_quote(str(problem))}'
        exit_failed(log, "kuberuntime_manager.go:258", text)


def _check_runtime(
    start: ProgramStart, log: ProgramLog, given: flags.KubeletFlags, release: tuple[int, int]
) -> None:
    """On Linux nodes of every kind the kubelet finds the node's runtime."""
    if not start.node.spec.windows:
        return
    begin = "failed to run Kubelet: "
    docker = start.node.network.runtime == "docker"
    dockershim = flags.has_dockershim(release)
    if given.runtime not in (("docker", "remote") if dockershim else ("remote",)):
        text = f"{begin}unsupported CRI runtime: {go_quote(given.runtime)}"
        if not dockershim:
            text += ', only "remote" is currently supported'
        exit_fatal(log, "server.go:271", text)
    if given.runtime == "docker" and not docker:
        exit_fatal(log, "server.go:271", _DOCKER_GONE)
    if given.runtime == "remote" and not given.endpoint:
        exit_fatal(log, "server.go:271", _NO_ENDPOINT)
    scheme = given.endpoint.partition(":")[0]
    if given.runtime == "remote" and scheme not in _SCHEMES:
        text = f"{begin}protocol {go_quote(scheme)} not supported"
        exit_fatal(log, "server.go:271", text)
    if given.runtime == "remote" and docker and dockershim:
        exit_fatal(
            log,
            "server.go:271",
            f"{begin}failed to create kubelet: get remote runtime typed version failed: rpc error: "
            'code = Unavailable desc = connection error: desc = "transport: Error while dialing '
            f"open {given.endpoint.removeprefix('npipe:')}: The system cannot find the file "
            'specified."',
        )
    if docker and given.network_plugin not in _NETWORK_PLUGINS:
        missing = f"network plugin {go_quote(given.network_plugin)} not found"
        exit_fatal(log, "server.go:271", f"{begin}failed to create kubelet: {missing}")


def _configure_docker(
    start: ProgramStart, log: ProgramLog, given: flags.KubeletFlags, config: KubeletConfig
) -> None:
    """With docker the kubelet chooses the pause image and runs the CNI plugins."""
    node = start.node
    runtime, pods = node.runtime, node.network.pods
    if not node.spec.windows or node.network.runtime != "docker":
        return
    if isinstance(runtime, SimRuntime):
        runtime.use_sandbox_image(
            config.pod_infra_image or start.rules.default_pause_image(config.release)
        )
        runtime.pull_deadline = config.image_pull_progress_deadline
    if given.network_plugin:
        directory, binaries = start.path(given.cni_conf_dir), start.path(given.cni_bin_dir)
        if (pods.directory, pods.binaries) != (directory, binaries):
            pods.look_in(directory, binaries)
    else:
        log.line(
            WARNING,
            "docker_service.go:240",
            "simulated: without --network-plugin=cni Docker would put pods into its own network; "
            "here the plugins of CNI go on",
        )
    if not log.quiet:
        problem = pods.network()
        if isinstance(problem, str):
            log.line(WARNING, "cni.go:239", f"Unable to update cni config: {problem}")


# ---- running ----


async def _run_standalone() -> int:
    await asyncio.Event().wait()
    return 0


async def _run(
    start: ProgramStart, log: ProgramLog, config: KubeletConfig, server: str, *, service: bool
) -> int:
    name = config.node_name
    log.info("kubelet.go:394", "Attempting to sync node with API server")
    log.info("kubelet_node_status.go:71", f"Attempting to register node {name}", 2)
    use_kubelet_log(log)
    registration = None
    if not log.quiet:
        registration = asyncio.ensure_future(_log_registration(start, log, name))
    try:
        await _run_kubelet(start, log, config, server, service=service)
    finally:
        if registration is not None:
            registration.cancel()
    return 0


async def _log_registration(start: ProgramStart, log: ProgramLog, name: str) -> None:
    await start.node.cluster.pod_cidr_assigned(name)
    log.info("kubelet_node_status.go:74", f"Successfully registered node {name}", 2)


async def _run_kubelet(
    start: ProgramStart, log: ProgramLog, config: KubeletConfig, server: str, *, service: bool
) -> None:
    """Runs until cancelled. Containers keep running, and the next kubelet finds them."""
    node = start.node
    await node.start_runtime()
    kubelet, events = _make_kubelet(start, log, config, server)
    if node.spec.windows and kubelet.ends_pods_at_shutdown and not service:
        log.line(ERROR, "kubelet.go:1680", _NO_SERVICE)
    listening = _listen(node, kubelet, config, log)
    node.kubelet_started(kubelet)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(events.run())
            group.create_task(kubelet.run(node.kubelet_socket()))
    finally:
        for close in listening:
            close()
        node.kubelet_ended(kubelet)


def _listen(
    node: ProgramHost, kubelet: Kubelet, config: KubeletConfig, log: ProgramLog
) -> list[Callable[[], None]]:
    """Its API, and /healthz for its own machine."""
    ports = ProgramListener(node, "kubelet")
    closers = [ports.listen("", config.port, lambda sock: _serve(node, kubelet, sock))]
    if config.healthz_port:
        address, port = config.healthz_bind_address, config.healthz_port
        try:
            closers.append(ports.serve(address, port, lambda: answer_ping_healthz))
        except OSError as problem:  # the kubelet keeps running without
            reason = (problem.strerror or str(problem)).lower()
            text = f"listen tcp {address}:{port}: bind: {reason}"
            log.line(ERROR, "server.go:409", f"Starting healthz server failed: {text}")
    return closers


def _make_kubelet(
    start: ProgramStart, log: ProgramLog, config: KubeletConfig, server: str
) -> tuple[Kubelet, EventRecorder]:
    node, cluster = start.node, start.node.cluster
    clock, rng = node.machine.clock, random.Random(cluster.rng.getrandbits(64))
    requests = RestClientMetrics(metric_rules(Release(*config.release)), urlsplit(server).netloc)
    client = _make_client(start, log, config, server, requests)
    events = EventRecorder(
        client,
        "kubelet",
        clock,
        rng,
        release=Release(*config.release),
        host=config.node_name,
        on_event=lambda event: log_event(log, event),
    )
    address = node.network.address
    env = KubeletContext(
        config=config,
        os=node.rules,
        client=client,
        clock=clock,
        rng=rng,
        events=events,
        host=node.machine,
        runtime=node.runtime,
        services=cluster.services,
        dial=lambda host, port: cluster.dataplane.connect(host, port, address),
        dial_loopback=node.runtime.connect_from_node
        if isinstance(node.runtime, SimRuntime)
        else None,
        node=lambda: None,
        drivers=DriverFolders(*node.driver_folders),
        cloud=cluster.cloud,
        run_program=_program_runner(node),
        decode_pod=pod_decoder(
            config.release,
            config.feature_gates,
            parse_release_version(cluster.settings.release),
            cluster.settings.feature_gates,
        ),
    )
    static = RealFolder(node.spec.static_pods) if node.spec.static_pods else None
    try:
        kubelet = Kubelet(env, tls=node.kubelet_tls, static=static, client_metrics=requests.collect)
        return kubelet, events
    except BadConfiguration as problem:
        message = f"the kubelet of {node.spec.name} refuses to start: {problem}"
        raise UserError(message) from problem


def _make_client(
    start: ProgramStart,
    log: ProgramLog,
    config: KubeletConfig,
    server: str,
    requests: RestClientMetrics,
) -> ApiClient:
    """Logs requests at --v=6, except those of a kubelet that was started at boot: they would fill
    its log.
    """
    node = start.node
    agent = f"kubelet/{config.version} ({node.spec.os}/amd64) kubernetes/kubelet"
    groups = ("system:nodes", "system:authenticated")
    client = node.cluster.client(f"system:node:{config.node_name}", groups, agent)
    known, host = start.reaches(server), server_host(server)
    return LoggedClient(
        client,
        log,
        node.machine.clock,
        server,
        reachable=lambda: known and node.network.has_route_to(host),
        quiet=start.at_boot and known,
        metrics=requests,
    )


def _serve(node: ProgramHost, kubelet: Kubelet, sock: socket) -> None:
    async def serve() -> None:
        try:
            await kubelet.server.adopt(sock)
        except (OSError, ssl.SSLError) as problem:
            log.info("a connection to the kubelet of %s failed: %s", node.spec.name, problem)

    node.cluster.spawn_if_running(serve)


def _program_runner(node: ProgramHost) -> RunProgram | None:
    """How the kubelet runs programs of its node; None if it must not."""
    runtime = node.runtime
    if not isinstance(runtime, SimRuntime):
        return None

    async def run(
        argv: Sequence[str],
        seconds: float,
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] = MappingProxyType({}),
        apart: bool = False,
    ) -> ProgramOutput:
        return ProgramOutput(
            *await runtime.run_program(
                node.login_machine(),
                argv,
                seconds,
                stdin=stdin,
                environment=environment,
                apart=apart,
            )
        )

    return run


# ---- events ----


def log_event(log: ProgramLog, event: Object, at: float | None = None) -> None:
    """Logs an event as the kubelet does. A quiet log gets its events from the API server when it is
    attached.
    """
    if log.quiet or log.verbosity < _EVENT_VERBOSITY:
        return
    about = event["involvedObject"]
    parts = {
        "object": "/".join(filter(None, (about.get("namespace"), about.get("name")))),
        "kind": about.get("kind", ""),
        "apiVersion": about.get("apiVersion", ""),
        "type": event["type"],
        "reason": event["reason"],
        "message": event["message"],
    }
    fields = " ".join(f"{name}={go_quote(text)}" for name, text in parts.items())
    log.line(INFO, "event.go:291", f'"Event occurred" {fields}', at)


def log_failure(log: ProgramLog, problem: Exception) -> int:
    """Logs an error that ends the kubelet. Returns its exit code."""
    log.line(FATAL, "server.go:271", f"failed to run Kubelet: {problem}")
    return 255
