"""The objects in which kubeadm keeps the configuration of a cluster. Tools and manifests of nodes
read them: `kubeadm join`, and DaemonSets that mount the ConfigMap.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from transom.kit.named_tuple import NamedTuple
from transom.machinery.releases import Release
from transom.machinery.releases.kubeadm import kubeadm_facts

CONFIG_MAP: Final = "kubeadm-config"
_ROLE: Final = "kubeadm:nodes-kubeadm-config"
_NAMESPACE: Final = "kube-system"
_RBAC: Final = "rbac.authorization.k8s.io"
_GROUPS: Final = ("system:bootstrappers:kubeadm:default-node-token", "system:nodes")


class KubeadmCluster(NamedTuple):
    release: Release
    git_version: str
    node: str  # the control-plane node
    address: str
    port: int
    pod_cidr: str
    service_cidr: str
    dns_domain: str = "cluster.local"


def kubeadm_config_map(cluster: KubeadmCluster) -> dict[str, Any]:
    facts = kubeadm_facts(cluster.release)
    configuration: dict[str, Any] = {
        "apiServer": {},
        "apiVersion": facts.api_version,
        "certificatesDir": "/etc/kubernetes/pki",
        "clusterName": "kubernetes",
        "controllerManager": {},
        "dns": {"type": "CoreDNS"} if facts.names_dns else {},
        "etcd": {"local": {"dataDir": "/var/lib/etcd"}},
        "imageRepository": facts.image_repository,
        "kind": "ClusterConfiguration",
        "kubernetesVersion": cluster.git_version,
        "networking": {
            "dnsDomain": cluster.dns_domain,
            "podSubnet": cluster.pod_cidr,
            "serviceSubnet": cluster.service_cidr,
        },
        "scheduler": {},
    }
    if facts.api_server_timeout:
        configuration["apiServer"] = {
            "extraArgs": {"authorization-mode": "Node,RBAC"},
            "timeoutForControlPlane": "4m0s",
        }
    if facts.certificate_periods:
        configuration |= {
            "caCertificateValidityPeriod": "87600h0m0s",
            "certificateValidityPeriod": "8760h0m0s",
            "encryptionAlgorithm": "RSA-2048",
            "proxy": {},
        }
    data = {"ClusterConfiguration": yaml.safe_dump(configuration)}
    if facts.writes_status:
        endpoint = {"advertiseAddress": cluster.address, "bindPort": cluster.port}
        status = {
            "apiEndpoints": {cluster.node: endpoint},
            "apiVersion": facts.api_version,
            "kind": "ClusterStatus",
        }
        data["ClusterStatus"] = yaml.safe_dump(status)
    return {"metadata": {"name": CONFIG_MAP, "namespace": _NAMESPACE}, "data": data}


def kubeadm_config_role() -> dict[str, Any]:
    rule = {
        "apiGroups": [""],
        "resourceNames": [CONFIG_MAP],
        "resources": ["configmaps"],
        "verbs": ["get"],
    }
    return {"metadata": {"name": _ROLE, "namespace": _NAMESPACE}, "rules": [rule]}


def kubeadm_config_role_binding() -> dict[str, Any]:
    return {
        "metadata": {"name": _ROLE, "namespace": _NAMESPACE},
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": _ROLE},
        "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": name} for name in _GROUPS],
    }
