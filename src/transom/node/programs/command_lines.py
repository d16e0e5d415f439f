"""The command lines that the programs of a node have at boot, and the files that they read.

On Windows these are the command lines of the Kubernetes documentation, on Linux those of kubeadm,
both with the settings of the node's specification.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.kubelet.config import DEFAULT_PRIORITY_CLASS, KubeletConfig
from transom.machinery.releases import Release
from transom.machinery.releases.kube_proxy import proxy_accepts
from transom.machinery.releases.kubelet_flags import kubelet_accepts
from transom.machines.api import Files
from transom.node.network import NodeNetwork
from transom.node.network_windows import WindowsNodeNetwork
from transom.node.programs.flags.kubelet import has_dockershim, refused_flags
from transom.runtime.sim.login import scripts

log = logging.getLogger("transom.node")

BINARIES: Final = ("kubelet", "kube-proxy", "flanneld")
_PIPE: Final = "npipe:////./pipe/containerd-containerd"
_DOCKER_PIPE: Final = "npipe:////./pipe/cri-dockerd"
_SOCKET: Final = "unix:///run/containerd/containerd.sock"
_DEFAULTS: Final = KubeletConfig("", "")


class NodeProgramFiles(NamedTuple):
    """Where a node has its programs and their files."""

    home: str  # the working directory of programs at boot
    kubeconfig: str
    net_conf: str
    programs: Mapping[str, str]


# Of programs on Windows that have no --log-dir.
SERVICE_LOGS: Final = {
    "kubelet": r"C:\var\logs\kubelet.log",
    "kube-proxy": r"C:\var\logs\kube-proxy.log",
}
WINDOWS_FILES: Final = NodeProgramFiles(
    r"C:\k",
    r"c:\k\config",
    r"C:\etc\kube-flannel\net-conf.json",
    {
        "kubelet": r"C:\k\kubelet.exe",
        "kube-proxy": r"C:\k\kube-proxy.exe",
        "flanneld": r"C:\flannel\flanneld.exe",
    },
)
LINUX_FILES: Final = NodeProgramFiles(
    "/",
    "/etc/kubernetes/kubelet.conf",
    "/etc/kube-flannel/net-conf.json",
    {
        "kubelet": "/usr/bin/kubelet",
        "kube-proxy": "/usr/local/bin/kube-proxy",
        "flanneld": "/opt/bin/flanneld",
    },
)


class CommandLine(NamedTuple):
    path: str
    argv: list[str]
    environment: dict[str, str]  # in addition to the machine's


class InstalledKubeconfig(NamedTuple):
    """The kubeconfig that a node is set up with."""

    server: str
    content: bytes


def node_files(network: NodeNetwork) -> NodeProgramFiles:
    return WINDOWS_FILES if network.os == "windows" else LINUX_FILES


def program_command_line(
    binary: str, network: NodeNetwork, kubelet_settings: Callable[[], KubeletConfig]
) -> CommandLine:
    """The command line with which a node starts a program at boot."""
    path = node_files(network).programs[binary]
    if binary == "kubelet":
        return CommandLine(path, _kubelet(kubelet_settings(), network), {})
    if binary == "flanneld":
        return CommandLine(path, _flanneld(network), {"NODE_NAME": network.spec.name})
    if isinstance(network, WindowsNodeNetwork):
        return _windows_kube_proxy(path, network)
    return CommandLine(path, _linux_kube_proxy(network), {})


# ---- kubelet ----


def _kubelet(config: KubeletConfig, network: NodeNetwork) -> list[str]:
    """Without the flags that the kubelet's release refuses."""
    release = Release(*config.release)
    line = _kubelet_options(config, network)
    return [word for word in line if kubelet_accepts(release, word[2:].partition("=")[0])]


def _kubelet_options(config: KubeletConfig, network: NodeNetwork) -> list[str]:
    line = [
        f"--hostname-override={config.node_name}",
        *(_windows_kubelet(config, network) if network.os == "windows" else _linux_kubelet(config)),
    ]
    if config.secondary_node_ip:
        line.append(f"--node-ip={config.node_ip},{config.secondary_node_ip}")
    if config.max_pods != _DEFAULTS.max_pods:
        line.append(f"--max-pods={config.max_pods}")
    if config.windows_priorityclass != DEFAULT_PRIORITY_CLASS:
        line.append(f"--windows-priorityclass={config.windows_priorityclass}")
    if config.register_with_taints:
        taints = ",".join(map(_taint, config.register_with_taints))
        line.append(f"--register-with-taints={taints}")
    if config.eviction_hard is not None:
        line.append(f"--eviction-hard={_pairs(config.eviction_hard, '<')}")
    if config.image_gc_high_threshold_percent != _DEFAULTS.image_gc_high_threshold_percent:
        line.append(f"--image-gc-high-threshold={config.image_gc_high_threshold_percent}")
        line.append(f"--image-gc-low-threshold={config.image_gc_low_threshold_percent}")
    for name, values, between in (
        ("node-labels", config.node_labels, "="),
        ("kube-reserved", config.kube_reserved, "="),
        ("system-reserved", config.system_reserved, "="),
        ("eviction-soft", config.eviction_soft, "<"),
        ("eviction-soft-grace-period", config.eviction_soft_grace_period, "="),
        ("feature-gates", _gate_texts(config.feature_gates), "="),
    ):
        if values:
            line.append(f"--{name}={_pairs(values, between)}")
    return line


def _windows_kubelet(config: KubeletConfig, network: NodeNetwork) -> list[str]:
    line = [
        "--v=6",
        f"--pod-infra-container-image={config.pod_infra_image}",
        "--resolv-conf=",
        "--enable-debugging-handlers",
        f"--cluster-dns={','.join(config.cluster_dns)}",
        f"--cluster-domain={config.cluster_domain}",
        f"--kubeconfig={WINDOWS_FILES.kubeconfig}",
        "--hairpin-mode=promiscuous-bridge",
        "--image-pull-progress-deadline=20m",
        "--cgroups-per-qos=false",
        f"--log-dir={WINDOWS_FILES.home}",
        "--logtostderr=false",
        "--enforce-node-allocatable=",
    ]
    if network.runtime == "docker" and has_dockershim(config.release):
        pods = network.usual_cni_folders
        return [
            *line,
            "--network-plugin=cni",
            f"--cni-bin-dir={pods.binaries}",
            f"--cni-conf-dir={pods.directory}",
        ]
    pipe = _DOCKER_PIPE if network.runtime == "docker" else _PIPE
    return [*line, "--container-runtime=remote", f"--container-runtime-endpoint={pipe}"]


def _linux_kubelet(config: KubeletConfig) -> list[str]:
    return [
        "--v=2",
        f"--kubeconfig={LINUX_FILES.kubeconfig}",
        "--container-runtime=remote",
        f"--container-runtime-endpoint={_SOCKET}",
        f"--pod-infra-container-image={config.pod_infra_image}",
        f"--cluster-dns={','.join(config.cluster_dns)}",
        f"--cluster-domain={config.cluster_domain}",
    ]


# ---- kube-proxy and flanneld ----


def _windows_kube_proxy(path: str, network: WindowsNodeNetwork) -> CommandLine:
    options = network.proxy_options()
    settings = network.shared.settings
    line = ["--v=4", f"--proxy-mode={settings.proxy_mode}"]
    gates = dict(options.gates)
    overlay = settings.mode == "overlay"
    if overlay and options.gate("WinOverlay"):
        gates["WinOverlay"] = True
    line += _feature_gates(gates)
    line.append(f"--hostname-override={network.proxy_hostname}")
    line.append(f"--kubeconfig={WINDOWS_FILES.kubeconfig}")
    environment = {}
    if overlay:
        line.append(f"--network-name={options.network_name}")
        if options.source_vip:
            line.append(f"--source-vip={options.source_vip}")
    else:
        environment["KUBE_NETWORK"] = options.network_name
    line += [
        f"--enable-dsr={str(options.enable_dsr).lower()}",
        f"--cluster-cidr={options.cluster_cidr}",
        f"--log-dir={WINDOWS_FILES.home}",
        "--logtostderr=false",
    ]

    line = [word for word in line if proxy_accepts(options.release, word[2:].partition("=")[0])]
    return CommandLine(path, line, environment)


def _linux_kube_proxy(network: NodeNetwork) -> list[str]:
    return [
        "--v=2",
        *_feature_gates(network.proxy_feature_gates()),
        f"--hostname-override={network.proxy_hostname}",
        f"--kubeconfig={LINUX_FILES.kubeconfig}",
        f"--cluster-cidr={network.cluster_cidr()}",
    ]


def _flanneld(network: NodeNetwork) -> list[str]:
    kubeconfig = node_files(network).kubeconfig
    line = [f"--kubeconfig-file={kubeconfig}"]
    if network.os == "windows":
        line.append(f"--iface={network.address}")
    return [*line, "--ip-masq=1", "--kube-subnet-mgr=1"]


# ---- files ----


def service_environment(network: NodeNetwork, hostname: str) -> dict[str, str]:
    """The environment of a service."""
    if network.os == "linux":
        return {"HOME": "/root", "USER": "root"}
    return {
        "USERNAME": f"{hostname}$",
        "USERDOMAIN": "WORKGROUP",
        "COMPUTERNAME": hostname,
        "TEMP": r"C:\Windows\Temp",
    }


def make_kubeconfig(server: str, user: str, newline: str) -> InstalledKubeconfig:
    lines = [
        "# Simulated: there is no key in it. Programs of this node authenticate as the user below.",
        "apiVersion: v1",
        "kind: Config",
        "clusters:",
        "- name: kubernetes",
        f"  cluster: {{server: {server}}}",
        "users:",
        f'- name: "{user}"',
        "  user: {}",
        "contexts:",
        "- name: default",
        f'  context: {{cluster: kubernetes, user: "{user}"}}',
        "current-context: default",
        "",
    ]
    return InstalledKubeconfig(server, newline.join(lines).encode())


def install_node_files(
    files: Files,
    network: NodeNetwork,
    kubeconfig: InstalledKubeconfig,
    release: tuple[int, int],
    *,
    simulated: bool,
) -> None:
    """Writes the files that a node is set up with, unless they exist, as far as the disk has space:
    the kubeconfig and flannel's configuration; on simulated Windows nodes also the programs and
    their start scripts, for the kubelet of `release`.
    """
    name = network.spec.name
    paths = node_files(network)
    content = {paths.kubeconfig: kubeconfig.content, paths.net_conf: network.net_conf()}
    if network.os == "windows" and simulated:
        try:
            scripts.install_node_scripts(files, refused_flags(release))
        except OSError as problem:
            log.warning("the scripts of node %s cannot be written: %s", name, problem.strerror)
        content |= dict.fromkeys(paths.programs.values(), b"MZ")
    separator = "\\" if network.os == "windows" else "/"
    for path, data in content.items():
        if not files.exists(path):
            try:
                files.mkdir(path.rpartition(separator)[0])
                files.write(path, data)
            except OSError as problem:
                log.warning("%s of node %s cannot be written: %s", path, name, problem.strerror)


def _taint(taint: Mapping[str, str]) -> str:
    return f"{taint['key']}={taint.get('value', '')}:{taint.get('effect', '')}"


def _pairs(values: Mapping[str, str], between: str) -> str:
    return ",".join(f"{name}{between}{value}" for name, value in values.items())


def _feature_gates(gates: Mapping[str, bool]) -> list[str]:
    return [f"--feature-gates={_pairs(_gate_texts(gates), '=')}"] if gates else []


def _gate_texts(gates: Mapping[str, bool]) -> dict[str, str]:
    return {name: str(on).lower() for name, on in gates.items()}
