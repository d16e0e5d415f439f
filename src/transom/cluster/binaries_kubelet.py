"""kubelet.exe: from a command line to a kubelet that runs on a machine of the fleet, or to the words with which it refuses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import yaml

from transom.client.api import Client
from transom.cluster.binaries_client import ToldClient
from transom.cluster.binaries_start import UNUSED, BadKubeconfig, Ended, Running, Start, fatal, one_or_list
from transom.cluster.flags import gates, klog
from transom.cluster.flags import kubelet as flags
from transom.cluster.flags.golang import FlagError, Parsed, usage
from transom.cluster.nodelog import ERROR, FATAL, INFO, WARNING, NodeLog
from transom.kubelet.config import KubeletConfig
from transom.kubelet.node import checks
from transom.kubelet.os_windows import RULES
from transom.machinery.field import go_quote
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from transom.runtime.sim.engine import SimRuntime

_DOCKER_GONE: Final = (
    "failed to run Kubelet: failed to create kubelet: failed to get docker version: error during connect: Get "
    '"http://%2F%2F.%2Fpipe%2Fdocker_engine/v1.24/version": open //./pipe/docker_engine: The system cannot find the file '
    "specified. In the default daemon configuration on Windows, the docker client must be run elevated to connect. This error "
    "may also indicate that the docker daemon is not running."
)
_NO_ENDPOINT: Final = (
    "failed to run Kubelet: the container runtime endpoint address was not specified or empty, use "
    "--container-runtime-endpoint to set"
)
_PORT_TAKEN: Final = (
    "listen tcp 0.0.0.0:{port}: bind: Only one usage of each socket address (protocol/network address/port) is normally "
    "permitted."
)
_EVENTS: Final = 3  # the verbosity from which on events are in the log
_PLUGINS: Final = ("", "cni")
# Fields of KubeletConfiguration by the flags that mean the same.
_FILE: Final = {
    "clusterDNS": "cluster-dns", "clusterDomain": "cluster-domain", "resolvConf": "resolv-conf", "maxPods": "max-pods",
    "cgroupsPerQOS": "cgroups-per-qos", "enforceNodeAllocatable": "enforce-node-allocatable", "kubeReserved": "kube-reserved",
    "systemReserved": "system-reserved", "evictionHard": "eviction-hard", "evictionSoft": "eviction-soft",
    "evictionSoftGracePeriod": "eviction-soft-grace-period", "featureGates": "feature-gates", "podsPerCore": "pods-per-core",
    "enableDebuggingHandlers": "enable-debugging-handlers", "hairpinMode": "hairpin-mode", "port": "port",
    "staticPodPath": "pod-manifest-path", "serializeImagePulls": "serialize-image-pulls", "providerID": "provider-id",
}  # fmt: skip


def start(given: Start, *, runs: bool) -> Running:
    """`runs`: there is a kubelet on the machine already. Raises Ended."""
    try:
        parsed = flags.parse(given.argv)
    except FlagError as problem:
        given.say(usage("kubelet", flags.TABLE))
        fatal(given.log(klog.Logging()), "server.go:155", str(problem))
    wanted = flags.wanted(parsed)
    base = _base(given)
    if wanted.help:
        given.say(usage("kubelet", flags.TABLE))
        raise Ended(0)
    if wanted.version:
        given.say(f"Kubernetes {base.version}\n")
        raise Ended(0)
    for text in wanted.deprecated:
        given.say(text + "\n")
    log = given.log(wanted.logging)
    for name, text in sorted(parsed.texts.items()):
        log.info("flags.go:59", f"FLAG: --{name}={go_quote(text)}", 1)
    if wanted.unused:
        log.line(WARNING, "server.go:191", UNUSED % " ".join(f"--{name}" for name in wanted.unused))
    if wanted.config_file:
        _read_file(given, log, wanted.config_file, parsed)
    config = _checked(given, log, parsed, base)
    log.info("server.go:416", f"Version: {config.version} (simulated)")
    log.info("init_windows.go:54", f"Setting the priority of kubelet process to {config.windows_priorityclass}")
    server = ""
    if wanted.kubeconfig:
        try:
            server = given.server(wanted.kubeconfig)
        except BadKubeconfig as problem:
            fatal(log, "server.go:271", f"failed to run Kubelet: invalid kubeconfig: {problem}")
    else:
        log.line(WARNING, "server.go:558", "standalone mode, no API client")
    _check_runtime(given, log, wanted)
    if runs:
        fatal(log, "server.go:158", _PORT_TAKEN.format(port=config.port))
    if not wanted.kubeconfig:
        log.info("kubelet.go:404", "Kubelet is running in standalone mode, will skip API server sync")
        return Running(_alone, log, wanted.service)
    _set_up(given, log, wanted, config)
    return Running(lambda: _life(given, log, config, server), log, wanted.service)


def _base(given: Start) -> KubeletConfig:
    """With the defaults of flags, which are not those of the guides."""
    usual = given.fleet.settings(given.machine.spec)
    return KubeletConfig(
        node_name=given.machine.spec.name, node_ip=usual.node_ip, version=usual.version,
        root_dir=usual.root_dir, pod_logs_dir=usual.pod_logs_dir,
    )  # fmt: skip


def _read_file(given: Start, log: NodeLog, path: str, parsed: Parsed) -> None:
    """Flags count before the file."""
    begin = f"failed to load Kubelet config file {path}, error "
    try:
        content = yaml.safe_load(given.files.read(given.path(path)))
    except OSError as problem:
        said = RULES.file_error("open", path, problem)
        fatal(log, "server.go:198", f'{begin}failed to read kubelet config file "{path}", error: {said}')
    except yaml.YAMLError as problem:
        fatal(log, "server.go:198", f"{begin}{str(problem).partition(chr(10))[0]}")
    if not isinstance(content, dict) or content.get("kind") != "KubeletConfiguration":
        kind = content.get("kind", "") if isinstance(content, dict) else ""
        fatal(log, "server.go:198", f'{begin}no kind "{kind}" is registered for version "kubelet.config.k8s.io/v1beta1"')
    for field, value in content.items():
        name = _FILE.get(field)
        if name is not None and name not in parsed.values:
            parsed.values[name] = tuple(map(str, value)) if isinstance(value, list) else value


def _checked(given: Start, log: NodeLog, parsed: Parsed, base: KubeletConfig) -> KubeletConfig:
    try:
        config = flags.configuration(parsed, base, given.path)
    except FlagError as problem:
        fatal(log, "server.go:210", str(problem))
    unknown = gates.unrecognized(config.feature_gates)
    if unknown:
        fatal(log, "server.go:178", unknown)
    problems = checks.check(config, RULES, given.machine.host)
    if problems:
        fatal(log, "server.go:210", one_or_list(problems))
    addresses = given.machine.network.addresses
    strange = [address for address in config.node_ips if address not in addresses]
    for address in strange:
        log.line(
            ERROR, "kubelet_node_status.go:586", "Failed to set some node status fields: failed to validate nodeIP: node IP: "
            f'"{address}" not found in the host\'s network interfaces (simulated: {base.node_ip} is used)',
        )  # fmt: skip
    return replace(config, node_ip=base.node_ip, secondary_node_ip="") if strange else config


def _check_runtime(given: Start, log: NodeLog, wanted: flags.Wanted) -> None:
    docker = given.machine.network.runtime == "docker"
    if wanted.runtime not in ("docker", "remote"):
        fatal(log, "server.go:271", f"failed to run Kubelet: unsupported CRI runtime: {go_quote(wanted.runtime)}")
    if wanted.runtime == "docker" and not docker:
        fatal(log, "server.go:271", _DOCKER_GONE)
    if wanted.runtime == "remote" and not wanted.endpoint:
        fatal(log, "server.go:271", _NO_ENDPOINT)
    if wanted.runtime == "remote" and docker:
        fatal(
            log, "server.go:271",
            "failed to run Kubelet: failed to create kubelet: get remote runtime typed version failed: rpc error: code = "
            'Unavailable desc = connection error: desc = "transport: Error while dialing open '
            f'{wanted.endpoint.removeprefix("npipe:")}: The system cannot find the file specified."',
        )
    if docker and wanted.network_plugin not in _PLUGINS:
        missing = f"network plugin {go_quote(wanted.network_plugin)} not found"
        fatal(log, "server.go:271", f"failed to run Kubelet: failed to create kubelet: {missing}")


def _set_up(given: Start, log: NodeLog, wanted: flags.Wanted, config: KubeletConfig) -> None:
    """With docker the kubelet says what sandboxes are made of, and runs the plugins."""
    runtime: SimRuntime = given.machine.runtime
    if given.machine.network.runtime != "docker":
        return
    runtime.use_sandbox_image(config.pod_infra_image or RULES.default_pause_image())
    runtime.pull_deadline = config.image_pull_progress_deadline
    if wanted.network_plugin:
        given.machine.network.pods.look_in(given.path(wanted.cni_conf_dir), given.path(wanted.cni_bin_dir))
    else:
        log.line(WARNING, "docker_service.go:240", "simulated: without --network-plugin=cni Docker would put pods into its own "
                                                   "network; here the plugins of CNI go on")  # fmt: skip
    problem = given.machine.network.pods.network()
    if isinstance(problem, str):
        log.line(WARNING, "cni.go:239", f"Unable to update cni config: {problem}")


async def _alone() -> int:
    await asyncio.Event().wait()
    return 0


async def _life(given: Start, log: NodeLog, config: KubeletConfig, server: str) -> int:
    def way(client: Client) -> Client:
        return ToldClient(client, log, given.machine.host.clock, server, reachable=given.reaches(server))

    name = config.node_name
    log.info("kubelet.go:394", "Attempting to sync node with API server")
    log.info("kubelet_node_status.go:71", f"Attempting to register node {name}", 2)
    try:
        await given.fleet.kubelet_life(given.machine, config, way)
    except Exception as problem:  # whatever it is: the process ends of it, and says so
        log.line(FATAL, "server.go:271", f"failed to run Kubelet: {problem}")
        return 255
    return 0


def tell(log: NodeLog, event: Object, at: float | None = None) -> None:
    """An event, as the kubelet's log has it."""
    about = event["involvedObject"]
    where = "/".join(filter(None, (about.get("namespace"), about.get("name"))))
    parts = {
        "object": where, "kind": about.get("kind", ""), "apiVersion": about.get("apiVersion", ""), "type": event["type"],
        "reason": event["reason"], "message": event["message"],
    }  # fmt: skip
    if log.verbosity >= _EVENTS:
        said = " ".join(f"{name}={go_quote(text)}" for name, text in parts.items())
        log.line(INFO, "event.go:291", f'"Event occurred" {said}', at)
