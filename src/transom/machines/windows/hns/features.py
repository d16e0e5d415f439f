"""The features of each version of the host networking service, beyond those that every build's row
has for Services.
"""

from __future__ import annotations

from typing import Final

from transom.machines.windows.hns import errors
from transom.windows.builds import HNS_FEATURES, WindowsBuild, has_hns_feature

# As in HNS_FEATURES: the first versions with it; all but the last apply within their major version.
_MORE: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    "Preserve Destination": ((10, 0),),  # Windows Server, version 1903
    "HNS ACL Policies to support protocol 252 for VXLAN": ((11, 0),),
    "L4ProxyPolicy": ((9, 5), (10, 5), (11, 11), (12, 1), (13, 1)),
    "L4WfpProxyPolicy": ((13, 2),),
    "TierAcl": ((14, 0),),
    "NetworkACL": ((15, 0),),
    "NestedIpSet": ((15, 0),),
    "DisableHostPort": ((15, 1),),
    "Accelnet": ((15, 4),),
}
# Two names for the same feature: that of the table of builds, and that of the message.
_TABLE: Final = {"ModifyLoadbalancer": "Modify Loadbalancer"}
_MESSAGE: Final = {"Modify Loadbalancer": "ModifyLoadbalancer"}


def hns_supports(build: WindowsBuild, feature: str) -> bool:
    feature = _TABLE.get(feature, feature)
    if feature in HNS_FEATURES:
        return has_hns_feature(build, feature)
    *ranges, last = _MORE[feature]
    return build.hns >= last or any(first <= build.hns < (first[0] + 1, 0) for first in ranges)


def require_hns_feature(build: WindowsBuild, feature: str) -> None:
    if not hns_supports(build, feature):
        raise errors.unsupported_feature(_MESSAGE.get(feature, feature))
