"""The objects that manifests of kube-proxy as a DaemonSet expect in a cluster, as kubeadm creates
them: its service account, the binding of its role, and its configuration.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

NAMESPACE: Final = "kube-system"
NAME: Final = "kube-proxy"
_META: Final = {"name": NAME, "namespace": NAMESPACE}
_SECRETS: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


def kube_proxy_service_account() -> dict[str, Any]:
    return {"metadata": dict(_META)}


def kube_proxy_role_binding() -> dict[str, Any]:
    return {
        "metadata": {"name": "kubeadm:node-proxier"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:node-proxier",
        },
        "subjects": [{"kind": "ServiceAccount", **_META}],
    }


def kube_proxy_config_map(server: str, cluster_cidr: str) -> dict[str, Any]:
    """The configuration, and the kubeconfig that it names."""
    configuration = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": "0.0.0.0",
        "clientConnection": {"kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf"},
        "clusterCIDR": cluster_cidr,
    }
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "default",
                "cluster": {"certificate-authority": f"{_SECRETS}/ca.crt", "server": server},
            }
        ],
        "users": [{"name": "default", "user": {"tokenFile": f"{_SECRETS}/token"}}],
        "contexts": [
            {
                "name": "default",
                "context": {"cluster": "default", "namespace": "default", "user": "default"},
            }
        ],
        "current-context": "default",
    }
    return {
        "metadata": {**_META, "labels": {"app": NAME}},
        "data": {
            "config.conf": yaml.safe_dump(configuration, sort_keys=False),
            "kubeconfig.conf": yaml.safe_dump(kubeconfig, sort_keys=False),
        },
    }
