"""The labels and taints that kubeadm gives to control-plane nodes, by release. The name "master"
was replaced in three steps: a second label (1.20), both taints (1.24), only the new name (1.25).
"""

from __future__ import annotations

from typing import Final

from transom.machinery.releases.release import Release

_NAME: Final = "node-role.kubernetes.io/control-plane"
_OLD_NAME: Final = "node-role.kubernetes.io/master"
CONTROL_PLANE_LABELS: Final = frozenset((_NAME, _OLD_NAME))
_OLD_LABEL_UNTIL: Final = (1, 24)
_TAINT_SINCE: Final = (1, 24)
_OLD_TAINT_UNTIL: Final = (1, 25)


def control_plane_labels(release: Release) -> dict[str, str]:
    return {_NAME: ""} | ({_OLD_NAME: ""} if release < _OLD_LABEL_UNTIL else {})


def control_plane_taints(release: Release) -> tuple[dict[str, str], ...]:
    keys = [_NAME] if release >= _TAINT_SINCE else []
    if release < _OLD_TAINT_UNTIL:
        keys.append(_OLD_NAME)
    return tuple({"key": key, "effect": "NoSchedule"} for key in keys)
