"""What a node's status reports about its kubelet and runtime."""

from __future__ import annotations

from dataclasses import replace

from transom.kubelet.config import KubeletConfig
from transom.kubelet.node.features import kube_proxy_version, node_feature_fields
from transom.runtime.api import RuntimeVersion

OLD = KubeletConfig("n", "10.0.0.1")
NEW = replace(OLD, version="v1.36.4")
TWO = RuntimeVersion("containerd", "2.1.4-sim")


def test_a_node_of_1_20_reports_no_features() -> None:
    assert node_feature_fields(OLD, TWO, linux=True, recursive_read_only=False) == {}
    assert kube_proxy_version(OLD) == "v1.20.15"


def test_features_of_the_kubelet_and_the_runtime() -> None:
    found = node_feature_fields(NEW, TWO, linux=True, recursive_read_only=False)
    mounts = {h["features"]["recursiveReadOnlyMounts"] for h in found["runtimeHandlers"]}
    assert mounts == {False}
    assert found["features"] == {"supplementalGroupsPolicy": True}
    assert [handler["name"] for handler in found["runtimeHandlers"]] == ["", "runc"]
    assert found["declaredFeatures"] == [
        "ExtendWebSocketsToKubelet",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
        "RestartAllContainersOnContainerExits",
    ]
    older = node_feature_fields(
        NEW, RuntimeVersion("containerd", "1.7.29"), linux=True, recursive_read_only=True
    )
    assert older.keys() == {"declaredFeatures"}
    assert node_feature_fields(NEW, TWO, linux=False, recursive_read_only=False).keys() == {
        "declaredFeatures"
    }
    assert kube_proxy_version(NEW) == ""
