"""Fields of a node's status that report what its kubelet and its runtime support."""

from __future__ import annotations

from typing import Final

from transom.kubelet.config import KubeletConfig
from transom.kubelet.features import runtime_reports_features
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.kubelet import kubelet_has
from transom.runtime.api import RuntimeVersion

# Declared features are named like the gates that turn them on.
_DECLARED: Final = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
)
_HANDLERS: Final = ("", "runc")


def node_feature_fields(
    config: KubeletConfig, runtime: RuntimeVersion, *, linux: bool, recursive_read_only: bool
) -> Object:
    """`features`, `runtimeHandlers` and `declaredFeatures`, as far as the release has them."""
    enabled = FeatureSet(Release(*config.release), config.feature_gates).enabled
    out: Object = {}
    if linux and runtime_reports_features(runtime):
        if enabled("SupplementalGroupsPolicy"):
            out["features"] = {"supplementalGroupsPolicy": True}
        if enabled("RecursiveReadOnlyMounts") or enabled("UserNamespacesSupport"):
            supports = {"recursiveReadOnlyMounts": recursive_read_only, "userNamespaces": True}
            out["runtimeHandlers"] = [{"name": n, "features": supports} for n in _HANDLERS]
    if enabled("NodeDeclaredFeatures"):
        out["declaredFeatures"] = [name for name in _DECLARED if enabled(name)]
    return out


def swap_status(config: KubeletConfig, swap: int) -> Object:
    """The part of `nodeInfo` about the swap of the node, in bytes."""
    release = Release(*config.release)
    enabled = FeatureSet(release, config.feature_gates).enabled
    if not swap or not enabled("NodeSwap") or not kubelet_has(release, "SwapStatus"):
        return {}
    return {"swap": {"capacity": swap}}


def kube_proxy_version(config: KubeletConfig) -> str:
    """A kubelet does not know the version of kube-proxy; newer ones do not report their own."""
    enabled = FeatureSet(Release(*config.release), config.feature_gates).enabled
    return "" if enabled("DisableNodeKubeProxyVersion") else config.version
