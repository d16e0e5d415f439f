"""kube-proxy, flannel, Calico and csi-driver-smb as HostProcess DaemonSets: pods with the images,
commands, working directories and volumes of their published manifests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.doctor.virtual_cluster import VirtualCluster, virtual_cluster

from transom.client.resources import CLUSTER_ROLE_BINDINGS, CONFIG_MAPS, PODS, SERVICE_ACCOUNTS
from transom.node.spec import NodeSpec

POINT = "$env:CONTAINER_SANDBOX_MOUNT_POINT"
SOCKET = "C:\\\\var\\\\lib\\\\kubelet\\\\plugins\\\\smb.csi.k8s.io\\\\csi.sock"
NET_CONF = '{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "VNI": 4096}}'


def host_process_pod(name: str, containers: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    options = {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\system"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "nodeName": "w",
            "hostNetwork": True,
            "serviceAccountName": "kube-proxy",
            "securityContext": {"windowsOptions": options},
            "containers": containers,
            **spec,
        },
    }


def config_volume(name: str) -> dict[str, Any]:
    return {"name": name, "configMap": {"name": name}}


AGENTS = [
    host_process_pod(
        "kube-proxy-calico",
        [
            {
                "name": "kube-proxy",
                "image": "sigwindowstools/kube-proxy:v1.36.4-calico-hostprocess",
                "args": [f"{POINT}/kube-proxy/start.ps1"],
                "workingDir": f"{POINT}/kube-proxy/",
                "env": [{"name": "NODENAME", "value": "w"}],
                "volumeMounts": [{"name": "kube-proxy", "mountPath": "/var/lib/kube-proxy"}],
            }
        ],
        volumes=[config_volume("kube-proxy")],
    ),
    host_process_pod(
        "flannel",
        [
            {
                "name": "kube-flannel",
                "image": "sigwindowstools/flannel:v0.21.5-hostprocess",
                "volumeMounts": [{"name": "cfg", "mountPath": "/mounts/kube-flannel/"}],
            }
        ],
        volumes=[{"name": "cfg", "configMap": {"name": "kube-flannel-cfg"}}],
    ),
    host_process_pod(
        "calico",
        [
            {
                "name": "felix",
                "image": "calico/windows:v3.26.4",
                "args": [".\\felix\\felix-service.ps1"],
                "workingDir": "..\\..\\CalicoWindows",
                "readinessProbe": {
                    "exec": {"command": ["c:\\\\CalicoWindows\\\\calico-node.exe", "-felix-ready"]},
                    "periodSeconds": 1,
                },
            }
        ],
        initContainers=[
            {
                "name": "install",
                "image": "calico/windows:v3.26.4",
                "args": [".\\host-process-install.ps1"],
            }
        ],
    ),
    host_process_pod(
        "calico-of-sig-windows",
        [
            {
                "name": name,
                "image": "sigwindowstools/calico-node:v3.24.5-hostprocess",
                "args": [f"{POINT}/calico/{name}-service.ps1"],
            }
            for name in ("node", "felix")
        ],
        initContainers=[
            {
                "name": "install-cni",
                "image": "sigwindowstools/calico-install:v3.24.5-hostprocess",
                "args": [f"{POINT}/calico/install.ps1"],
            }
        ],
    ),
    host_process_pod(
        "csi-proxy",
        [{"name": "csi-proxy", "image": "ghcr.io/kubernetes-sigs/sig-windows/csi-proxy:v1.1.2"}],
    ),
    host_process_pod(
        "csi-smb",
        [
            {
                "name": "node-driver-registrar",
                "image": "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.17.0",
                "command": ["csi-node-driver-registrar.exe"],
                "args": [
                    f"--csi-address=unix://{SOCKET}",
                    f"--kubelet-registration-path={SOCKET}",
                    "--plugin-registration-path=C:\\\\var\\\\lib\\\\kubelet\\\\plugins_registry\\\\",
                    "--http-endpoint=localhost:29641",
                ],
                "readinessProbe": {
                    "httpGet": {"host": "localhost", "path": "/healthz", "port": 29641},
                    "periodSeconds": 1,
                },
            },
            {
                "name": "smb",
                "image": "gcr.io/k8s-staging-sig-storage/smbplugin:canary-windows-hp",
                "command": ["smbplugin.exe"],
                "args": [f"--endpoint=unix://{SOCKET}", "--nodeid=w"],
            },
            {
                "name": "liveness-probe",
                "image": "registry.k8s.io/sig-storage/livenessprobe:v2.16.0",
                "args": [f"--csi-address=unix://{SOCKET}", "--http-endpoint=127.0.0.1:29642"],
                "readinessProbe": {
                    "httpGet": {"host": "localhost", "path": "/healthz", "port": 29642},
                    "periodSeconds": 1,
                },
            },
        ],
        initContainers=[
            {
                "name": "init",
                "image": "gcr.io/k8s-staging-sig-storage/smbplugin:canary-windows-hp",
                "command": [
                    "powershell.exe",
                    "-c",
                    "New-Item -ItemType Directory -Path "
                    "C:\\var\\lib\\kubelet\\plugins\\smb.csi.k8s.io\\ -Force",
                ],
            }
        ],
    ),
]


async def _ready(cluster: VirtualCluster, name: str) -> bool:
    pod = await cluster.client.get(PODS, "kube-system", name)
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def test_published_agents_become_ready(tmp_path: Path) -> None:
    nodes = [NodeSpec("control-plane"), NodeSpec("w", os="windows")]
    with virtual_cluster(tmp_path, nodes, release="1.36") as (cluster, run):

        async def scenario() -> None:
            client = cluster.client
            await client.get(SERVICE_ACCOUNTS, "kube-system", "kube-proxy")
            binding = await client.get(CLUSTER_ROLE_BINDINGS, "", "kubeadm:node-proxier")
            assert binding["roleRef"]["name"] == "system:node-proxier"
            config = await client.get(CONFIG_MAPS, "kube-system", "kube-proxy")
            assert "server: https://172.20.0.2:6443" in config["data"]["kubeconfig.conf"]
            kubeadm = await client.get(CONFIG_MAPS, "kube-system", "kubeadm-config")
            assert "kubeadm.k8s.io/v1beta4" in kubeadm["data"]["ClusterConfiguration"]
            await cluster.apply(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "kube-flannel-cfg", "namespace": "kube-system"},
                    "data": {"net-conf.json": NET_CONF},
                },
                *AGENTS,
            )
            for pod in AGENTS:
                name = pod["metadata"]["name"]
                await cluster.until(lambda name=name: _ready(cluster, name))
            pipe = r"\\.\pipe\csi-proxy-filesystem-v1"
            files = cluster.pool.node("w").machine.files
            assert files.exists(pipe)
            await client.delete(PODS, "kube-system", "csi-proxy", grace=0)
            await cluster.until(lambda: not files.exists(pipe))
            programs = cluster.pool.node("w").programs
            proxy, flanneld = programs.running("kube-proxy"), programs.running("flanneld")
            assert proxy is not None and "--hostname-override=w" in proxy.argv
            assert not proxy.at_boot
            assert flanneld is not None and "--iface=172.20.0.3" in flanneld.argv

        run(scenario())
