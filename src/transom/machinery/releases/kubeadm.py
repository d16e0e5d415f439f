"""What kubeadm writes about a cluster, by release: the version of its configuration and its fields.

kubeadm writes the version that its release prefers; 1.22 removed the status of the cluster.
"""

from __future__ import annotations

from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.machinery.releases.kubelet import linux_pause_image
from transom.machinery.releases.release import Release

_VERSIONS: Final = (
    (Release(1, 31), "kubeadm.k8s.io/v1beta4"),
    (Release(1, 22), "kubeadm.k8s.io/v1beta3"),
    (Release(1, 15), "kubeadm.k8s.io/v1beta2"),
)
_FIRST_VERSION: Final = "kubeadm.k8s.io/v1beta1"
_NO_STATUS_SINCE: Final = Release(1, 22)
_NO_TIMEOUT_SINCE: Final = Release(1, 31)


class KubeadmFacts(NamedTuple):
    api_version: str
    image_repository: str
    names_dns: bool  # dns.type
    api_server_timeout: bool  # apiServer.timeoutForControlPlane, and its authorization modes
    certificate_periods: bool  # with the algorithm of keys, and an entry for kube-proxy
    writes_status: bool  # the key ClusterStatus


def kubeadm_facts(release: Release) -> KubeadmFacts:
    newer = release >= _NO_TIMEOUT_SINCE
    return KubeadmFacts(
        api_version=next((name for since, name in _VERSIONS if release >= since), _FIRST_VERSION),
        image_repository=linux_pause_image(release).partition("/")[0],
        names_dns=release < _NO_STATUS_SINCE,
        api_server_timeout=not newer,
        certificate_periods=newer,
        writes_status=release < _NO_STATUS_SINCE,
    )
