"""Texts of warnings about objects that changed or came with a release."""

from __future__ import annotations

from functools import cache
from typing import Final

from transom.machinery.releases.release import TABLES_SINCE, Release

_REMOVAL: Final = "deprecated in v1.22, support removal is planned in v1.26"
_USE_SECCOMP: Final = 'use the "seccompProfile" field instead'
_MEMBER_NAMES: Final = (
    ((1, 27), "which can result in surprising behavior; a DNS label is recommended"),
)

# What the warning is about -> its texts, each with the release that it came with.
_TEXTS: Final[dict[str, tuple[tuple[tuple[int, int], str], ...]]] = {
    # ---- volumes of pods ----
    "volume cephfs": (((1, 28), "deprecated in v1.28, non-functional in v1.31+"),),
    "volume flocker": (
        ((1, 22), _REMOVAL),
        ((1, 27), "deprecated in v1.22, non-functional in v1.25+"),
    ),
    "volume gitRepo": (((1, 22), "deprecated in v1.11"),),
    "volume glusterfs": (
        (
            (1, 25),
            "deprecated in v1.25, this feature will be removed soon after in a subsequent release",
        ),
        ((1, 27), "deprecated in v1.25, non-functional in v1.26+"),
    ),
    "volume photonPersistentDisk": (((1, 22), "deprecated in v1.11, non-functional in v1.16+"),),
    "volume quobyte": (
        ((1, 22), _REMOVAL),
        ((1, 27), "deprecated in v1.22, non-functional in v1.25+"),
    ),
    "volume rbd": (((1, 28), "deprecated in v1.28, non-functional in v1.31+"),),
    "volume scaleIO": (((1, 22), "deprecated in v1.16, non-functional in v1.22+"),),
    "volume storageos": (
        ((1, 22), _REMOVAL),
        ((1, 27), "deprecated in v1.22, non-functional in v1.25+"),
    ),
    # ---- persistent volumes ----
    "persistent volume cephfs": (((1, 28), "deprecated in v1.28, non-functional in v1.31+"),),
    "persistent volume glusterfs": (((1, 28), "deprecated in v1.25, non-functional in v1.26+"),),
    "persistent volume photonPersistentDisk": (
        ((1, 28), "deprecated in v1.11, non-functional in v1.16+"),
    ),
    "persistent volume rbd": (((1, 28), "deprecated in v1.28, non-functional in v1.31+"),),
    "persistent volume scaleIO": (((1, 28), "deprecated in v1.16, non-functional in v1.22+"),),
    "persistent volume storageos": (((1, 28), "deprecated in v1.22, non-functional in v1.25+"),),
    "annotation volume.beta.kubernetes.io/storage-class": (
        ((1, 28), 'deprecated since v1.8; use "storageClassName" attribute instead'),
    ),
    "annotation volume.beta.kubernetes.io/mount-options": (
        ((1, 31), 'deprecated since v1.31; use "mountOptions" attribute instead'),
    ),
    "reclaim policy Recycle": (
        (
            (1, 30),
            "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to "
            "use dynamic provisioning.",
        ),
    ),
    # ---- labels of nodes ----
    "label beta.kubernetes.io/arch": (
        ((1, 22), 'deprecated since v1.14; use "kubernetes.io/arch" instead'),
    ),
    "label beta.kubernetes.io/os": (
        ((1, 22), 'deprecated since v1.14; use "kubernetes.io/os" instead'),
    ),
    "label failure-domain.beta.kubernetes.io/region": (
        ((1, 22), 'deprecated since v1.17; use "topology.kubernetes.io/region" instead'),
    ),
    "label failure-domain.beta.kubernetes.io/zone": (
        ((1, 22), 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'),
    ),
    "label beta.kubernetes.io/instance-type": (
        ((1, 22), 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead'),
    ),
    "label app.kubernetes.io/created-by": (((1, 31), "deprecated since v1.9"),),
    "label scheduler.alpha.kubernetes.io/preferAvoidPods": (
        ((1, 31), "deprecated since v1.22; use Taints and Tolerations instead"),
    ),
    "label node-role.kubernetes.io/master": (
        ((1, 31), 'use "node-role.kubernetes.io/control-plane" instead'),
    ),
    # ---- pods ----
    "null selector": (((1, 28), "a null labelSelector results in matching no pod"),),
    "seccomp annotation": (
        ((1, 22), f"deprecated since v1.19; {_USE_SECCOMP}"),
        ((1, 23), f"deprecated since v1.19, non-functional in v1.25+; {_USE_SECCOMP}"),
        ((1, 25), f"deprecated since v1.19, non-functional in a future release; {_USE_SECCOMP}"),
        ((1, 27), f"non-functional in v1.27+; {_USE_SECCOMP}"),
    ),
    "negative grace period": (
        ((1, 27), "must be >= 0; negative values are invalid and will be treated as 1"),
    ),
    "hidden variable": (
        ((1, 28), "hides previous definition of {}"),
        ((1, 30), "hides previous definition of {}, which may be dropped when using apply"),
    ),
    "pod name": _MEMBER_NAMES,
    # ---- other kinds ----
    "cron job zone": (
        (
            (1, 29),
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
            "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
        ),
    ),
    "large indexed job": (
        (
            (1, 28),
            "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism "
            "higher than 10^4, Kubernetes might not be able to track completedIndexes when a big "
            "number of indexes fail",
        ),
    ),
    "mountable secrets": (
        (
            (1, 32),
            "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
        ),
    ),
    "job deletion": (
        (
            (1, 23),
            "child pods are preserved by default when jobs are deleted; set "
            "propagationPolicy=Background to remove them or set propagationPolicy=Orphan to "
            "suppress this warning",
        ),
    ),
    "node configSource": (((1, 26), "the feature is removed"),),
    "node externalID": (((1, 27), "this field is deprecated, and is unused by Kubernetes"),),
    "static suffix": (
        (
            (1, 36),
            'metadata.name: names ending with ".static.k8s.io" are reserved for static '
            "manifest-based configurations and cannot be managed via the API",
        ),
    ),
}


@cache
def _release_texts(release: Release) -> dict[str, str]:
    if release < TABLES_SINCE:
        return {}
    out = {}
    for about, texts in _TEXTS.items():
        for since, text in texts:
            if release >= Release(*since):
                out[about] = text
    return out


def warning_text(release: Release, about: str) -> str:
    """The text of the release, "" if it does not warn."""
    return _release_texts(release).get(about, "")
