"""Feature gates: `--feature-gates A=true,B=false`, with the names Kubernetes has for them."""

from __future__ import annotations

from collections.abc import Iterable

from transom.cluster.errors import ClusterError

# Gates that something here asks for, and what they open.
KNOWN = {
    "AnyVolumeDataSource": "claims may name any kind of data source",
    "CSIServiceAccountToken": "CSI drivers may ask for tokens",
    "CSIStorageCapacity": "CSI drivers may publish their capacity",
    "HPAContainerMetrics": "autoscalers may follow the resources of one container",
    "IPv6DualStack": "nodes may have a range of pod addresses of each family",
    "TTLAfterFinished": "Jobs with ttlSecondsAfterFinished are deleted when they have been over for that long",
}
_VALUES = {"true": True, "false": False}


def gates(settings: Iterable[str]) -> dict[str, bool]:
    """The gates of the settings `Name=true`; an unknown name or value is an error that says so."""
    out = {}
    for setting in settings:
        name, _, value = setting.strip().partition("=")
        if name not in KNOWN:
            raise ClusterError(f"unrecognized feature gate: {name}", f"known are: {', '.join(KNOWN)}")
        if value.lower() not in _VALUES:
            raise ClusterError(f"invalid value of {name}: {value!r}", f"say {name}=true or {name}=false")
        out[name] = _VALUES[value.lower()]
    return out
