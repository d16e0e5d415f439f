"""The ConfigMap that kubeadm writes, by release."""

from __future__ import annotations

import pytest
import yaml

from transom.machinery.releases import Release
from transom.node.kubeadm_objects import KubeadmCluster, kubeadm_config_map


def config(minor: int) -> dict[str, str]:
    release = Release(1, minor)
    made = kubeadm_config_map(
        KubeadmCluster(
            release, f"v1.{minor}.0", "cp", "172.20.0.2", 6443, "10.244.0.0/16", "10.96.0.0/16"
        )
    )
    assert made["metadata"] == {"name": "kubeadm-config", "namespace": "kube-system"}
    return dict(made["data"])


@pytest.mark.parametrize(
    ("minor", "version", "registry"),
    [
        (14, "v1beta1", "k8s.gcr.io"),
        (20, "v1beta2", "k8s.gcr.io"),
        (22, "v1beta3", "k8s.gcr.io"),
        (30, "v1beta3", "registry.k8s.io"),
        (36, "v1beta4", "registry.k8s.io"),
    ],
)
def test_the_version_of_the_release(minor: int, version: str, registry: str) -> None:
    content = yaml.safe_load(config(minor)["ClusterConfiguration"])
    assert (content["apiVersion"], content["imageRepository"]) == (
        f"kubeadm.k8s.io/{version}",
        registry,
    )
    assert content["kubernetesVersion"] == f"v1.{minor}.0"
    assert content["networking"] == {
        "dnsDomain": "cluster.local",
        "podSubnet": "10.244.0.0/16",
        "serviceSubnet": "10.96.0.0/16",
    }
    assert ("encryptionAlgorithm" in content) is (minor >= 31)


def test_old_releases_also_have_the_status_of_the_cluster() -> None:
    status = yaml.safe_load(config(21)["ClusterStatus"])
    assert status["apiEndpoints"] == {"cp": {"advertiseAddress": "172.20.0.2", "bindPort": 6443}}
    assert list(config(22)) == ["ClusterConfiguration"]
