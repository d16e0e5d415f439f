"""The command lines that a Windows node's programs run with since boot, and the files that they are told of.

The lines are those of the documents, with what the node's description asks for. Read back, they give the settings that the
fleet starts the node with.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from transom.kubelet.config import DEFAULT_PRIORITY_CLASS, KubeletConfig

if TYPE_CHECKING:
    from transom.cluster.nodenet_windows import WindowsNodeNet
    from transom.hosts.api import Files

log = logging.getLogger("transom.cluster")

HOME: Final = r"C:\k"
KUBECONFIG: Final = r"c:\k\config"
NET_CONF: Final = r"C:\etc\kube-flannel\net-conf.json"
PATHS: Final = {"kubelet": r"C:\k\kubelet.exe", "kube-proxy": r"C:\k\kube-proxy.exe", "flanneld": r"C:\flannel\flanneld.exe"}
_PIPE: Final = "npipe:////./pipe/containerd-containerd"


def kubelet(config: KubeletConfig, runtime: str, plugins: tuple[str, str]) -> list[str]:
    """`plugins`: the folders of their configuration and of themselves."""
    line = [
        f"--hostname-override={config.node_name}", "--v=6", f"--pod-infra-container-image={config.pod_infra_image}",
        "--resolv-conf=", "--enable-debugging-handlers", f"--cluster-dns={','.join(config.cluster_dns)}",
        f"--cluster-domain={config.cluster_domain}", f"--kubeconfig={KUBECONFIG}", "--hairpin-mode=promiscuous-bridge",
        "--image-pull-progress-deadline=20m", "--cgroups-per-qos=false", f"--log-dir={HOME}", "--logtostderr=false",
        "--enforce-node-allocatable=",
    ]  # fmt: skip
    if runtime == "docker":
        line += ["--network-plugin=cni", f"--cni-bin-dir={plugins[1]}", f"--cni-conf-dir={plugins[0]}"]
    else:
        line += ["--container-runtime=remote", f"--container-runtime-endpoint={_PIPE}"]
    if config.secondary_node_ip:
        line.append(f"--node-ip={config.node_ip},{config.secondary_node_ip}")
    if config.max_pods != KubeletConfig("", "").max_pods:
        line.append(f"--max-pods={config.max_pods}")
    if config.windows_priorityclass != DEFAULT_PRIORITY_CLASS:
        line.append(f"--windows-priorityclass={config.windows_priorityclass}")
    if config.register_with_taints:
        line.append("--register-with-taints=" + ",".join(map(_taint, config.register_with_taints)))
    if config.eviction_hard is not None:
        line.append(f"--eviction-hard={_pairs(config.eviction_hard, '<')}")
    for name, values, between in (
        ("node-labels", config.node_labels, "="), ("kube-reserved", config.kube_reserved, "="),
        ("system-reserved", config.system_reserved, "="), ("eviction-soft", config.eviction_soft, "<"),
        ("eviction-soft-grace-period", config.eviction_soft_grace_period, "="),
        ("feature-gates", _spoken(config.feature_gates), "="),
    ):  # fmt: skip
        if values:
            line.append(f"--{name}={_pairs(values, between)}")
    return line


def kube_proxy(net: WindowsNodeNet) -> tuple[list[str], dict[str, str]]:
    """With its environment."""
    options = net.proxy_options()
    line = ["--v=4", f"--proxy-mode={net.shared.settings.proxy_mode}"]
    gates = dict(options.gates)
    overlay = net.shared.settings.mode == "overlay"
    if overlay and options.gate("WinOverlay"):
        gates["WinOverlay"] = True
    gates = {name: on for name, on in gates.items() if on or name != "IPv6DualStack"}
    if gates:
        line.append(f"--feature-gates={_pairs(_spoken(gates), '=')}")
    line += [f"--hostname-override={net.hostname}", f"--kubeconfig={KUBECONFIG}"]
    environment = {}
    if overlay:
        line.append(f"--network-name={options.network_name}")
        if options.source_vip:
            line.append(f"--source-vip={options.source_vip}")
    else:
        environment["KUBE_NETWORK"] = options.network_name
    line += [
        f"--enable-dsr={str(options.enable_dsr).lower()}", f"--cluster-cidr={options.cluster_cidr}", f"--log-dir={HOME}",
        "--logtostderr=false",
    ]  # fmt: skip
    return line, environment


def flanneld(net: WindowsNodeNet) -> tuple[list[str], dict[str, str]]:
    """With its environment."""
    line = [f"--kubeconfig-file={KUBECONFIG}", f"--iface={net.address}", "--ip-masq=1", "--kube-subnet-mgr=1"]
    return line, {"NODE_NAME": net.spec.name}


def account(computer: str) -> dict[str, str]:
    """What a service of the local system finds in its environment."""
    return {"USERNAME": f"{computer}$", "USERDOMAIN": "WORKGROUP", "COMPUTERNAME": computer, "TEMP": r"C:\Windows\Temp"}


def kubeconfig(server: str, user: str) -> bytes:
    lines = [
        "# Simulated: there is no key in it. Whoever runs on this node with it is the node that it says it is.",
        "apiVersion: v1", "kind: Config", "clusters:", "- name: kubernetes", f"  cluster: {{server: {server}}}",
        "users:", f'- name: "{user}"', "  user: {}", "contexts:", "- name: default",
        f'  context: {{cluster: kubernetes, user: "{user}"}}', "current-context: default", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode()


def install(files: Files, net: WindowsNodeNet, server: str) -> None:
    """What is on the disk of a node that was set up by hand, as far as it is not there yet, and as there is room for it."""
    wanted = dict.fromkeys(PATHS.values(), b"MZ")
    wanted[KUBECONFIG] = kubeconfig(server, f"system:node:{net.spec.name}")
    wanted[NET_CONF] = net.net_conf()
    for path, content in wanted.items():
        if not files.exists(path):
            try:
                files.mkdir(path.rpartition("\\")[0])
                files.write(path, content)
            except OSError as problem:
                log.warning("%s of node %s cannot be written: %s", path, net.spec.name, problem.strerror)


def _taint(taint: Mapping[str, str]) -> str:
    return f"{taint['key']}={taint.get('value', '')}:{taint.get('effect', '')}"


def _pairs(values: Mapping[str, str], between: str) -> str:
    return ",".join(f"{name}{between}{value}" for name, value in values.items())


def _spoken(gates: Mapping[str, bool]) -> dict[str, str]:
    return {name: str(on).lower() for name, on in gates.items()}
