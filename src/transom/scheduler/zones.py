"""The order in which nodes are evaluated: one of each zone in turn."""

from __future__ import annotations

from collections.abc import Mapping

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


def zone_key(labels: Mapping[str, str]) -> str:
    """The region and zone of a node, "" without labels. As in Kubernetes 1.20, the deprecated
    labels have precedence.
    """
    zone = labels.get(OLD_ZONE, labels.get(ZONE, ""))
    region = labels.get(OLD_REGION, labels.get(REGION, ""))
    return f"{region}:\0:{zone}" if zone or region else ""


class ZoneTree:
    def __init__(self) -> None:
        self._zones: dict[str, dict[int, None]] = {}  # zone -> rows, in insertion order
        self._zone_of: dict[int, str] = {}

    def add(self, row: int, zone: str) -> bool:
        """Returns whether the zone of the row changed."""
        if self._zone_of.get(row) == zone:
            return False
        self.remove(row)
        self._zone_of[row] = zone
        self._zones.setdefault(zone, {})[row] = None
        return True

    def remove(self, row: int) -> bool:
        zone = self._zone_of.pop(row, None)
        if zone is None:
            return False
        rows = self._zones[zone]
        del rows[row]
        if not rows:
            del self._zones[zone]
        return True

    def order(self) -> list[int]:
        out: list[int] = []
        zones = [list(rows) for rows in self._zones.values()]
        for turn in range(max(map(len, zones), default=0)):
            out += [rows[turn] for rows in zones if turn < len(rows)]
        return out

    def __len__(self) -> int:
        return len(self._zone_of)
