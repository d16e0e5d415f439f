"""The flags that the kubelet of a release accepts: the first release with a flag, the first one
without it, and the warnings about deprecated flags.

The releases are those of the kubelet's source at Kubernetes' tags. A flag without a row is in all
releases.
"""

from __future__ import annotations

from typing import Final

from transom.machinery.releases.release import Release

_Row = tuple[Release, str]

# klog's flags that kubelet and kube-proxy had before 1.26.
KLOG_FLAGS: Final = (
    "add-dir-header",
    "alsologtostderr",
    "log-backtrace-at",
    "log-dir",
    "log-file",
    "log-file-max-size",
    "logtostderr",
    "one-output",
    "skip-headers",
    "skip-log-headers",
    "stderrthreshold",
)
_SINCE: Final[dict[str, Release]] = {
    "config-dir": Release(1, 28),
    "cpu-manager-policy-options": Release(1, 22),
    "fail-cgroupv1": Release(1, 31),
    "local-storage-capacity-isolation": Release(1, 25),
    "log-json-info-buffer-size": Release(1, 23),
    "log-json-split-stream": Release(1, 23),
    "log-text-info-buffer-size": Release(1, 30),
    "log-text-split-stream": Release(1, 30),
    "memory-manager-policy": Release(1, 21),
    "reserved-memory": Release(1, 21),
    "seccomp-default": Release(1, 22),
    "topology-manager-policy-options": Release(1, 26),
    "windows-priorityclass": Release(1, 19),
}
# The first release whose kubelet refuses to start with the flag.
_REMOVED: Final[dict[str, Release]] = {
    "enable-cadvisor-json-endpoints": Release(1, 21),
    "chaos-chance": Release(1, 22),
    "redirect-container-streaming": Release(1, 22),
    "experimental-bootstrap-kubeconfig": Release(1, 23),
    "seccomp-profile-root": Release(1, 23),
    **dict.fromkeys(
        (
            "cni-bin-dir",
            "cni-cache-dir",
            "cni-conf-dir",
            "docker-endpoint",
            "dynamic-config-dir",
            "experimental-check-node-capabilities-before-mount",
            "experimental-dockershim-root-directory",
            "experimental-logging-sanitization",
            "image-pull-progress-deadline",
            "network-plugin",
            "network-plugin-mtu",
            "non-masquerade-cidr",
            "really-crash-for-testing",
        ),
        Release(1, 24),
    ),
    "experimental-kernel-memcg-notification": Release(1, 25),
    **dict.fromkeys(KLOG_FLAGS, Release(1, 26)),
    "container-runtime": Release(1, 27),
    "master-service-namespace": Release(1, 27),
    "azure-container-registry-config": Release(1, 30),
    "iptables-drop-bit": Release(1, 31),
    "iptables-masquerade-bit": Release(1, 31),
    "keep-terminated-pod-volumes": Release(1, 31),
    "cloud-config": Release(1, 34),
    "register-schedulable": Release(1, 34),
    "pod-infra-container-image": Release(1, 35),
}

_DOCKERSHIM: Final = "will be removed along with dockershim."
_SANDBOX: Final = "Image garbage collector will get sandbox image information from CRI."
_KLOG: Final = (
    "will be removed in a future release, see https://github.com/kubernetes/enhancements/tree/"
    "master/keps/sig-instrumentation/2845-deprecate-klog-specific-flags-in-k8s-components"
)
# Since which release a flag has which warning, newest first.
_DEPRECATED: Final[dict[str, tuple[_Row, ...]]] = {
    **dict.fromkeys(
        (
            "cni-bin-dir",
            "cni-cache-dir",
            "cni-conf-dir",
            "docker-endpoint",
            "image-pull-progress-deadline",
            "network-plugin",
            "network-plugin-mtu",
        ),
        ((Release(1, 21), _DOCKERSHIM),),
    ),
    **{
        name: ((Release(1, 23), _KLOG),)
        for name, removed in _REMOVED.items()
        if removed == Release(1, 26)
    },
    "container-runtime": (
        (Release(1, 24), "will be removed in 1.27 as the only valid value is 'remote'"),
    ),
    "pod-infra-container-image": (
        (Release(1, 32), f"will be removed in 1.35. {_SANDBOX}"),
        (Release(1, 27), f"will be removed in a future release. {_SANDBOX}"),
        (Release(1, 24), f"will be removed in 1.27. {_SANDBOX}"),
    ),
}


def kubelet_accepts(release: Release, flag: str) -> bool:
    since, removed = _SINCE.get(flag), _REMOVED.get(flag)
    return (since is None or release >= since) and (removed is None or release < removed)


def deprecated_flag_text(release: Release, flag: str) -> str:
    """The warning about a deprecated flag; "" for none."""
    rows = _DEPRECATED.get(flag, ())
    return next((text for since, text in rows if release >= since), "")
