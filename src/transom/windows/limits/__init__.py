"""The limits registry: every Windows limit as a record. `LIMITS` has them by id, ordered by area."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transom.windows.limits import (
    api,
    containers,
    current,
    dns,
    network,
    nodes,
    pods,
    resources,
    runtime,
    security,
    services,
    storage,
    systems,
)
from transom.windows.records import WindowsLimit

_AREAS: Final = (
    systems,
    pods,
    containers,
    security,
    resources,
    storage,
    network,
    services,
    dns,
    nodes,
    runtime,
    api,
    current,
)

LIMITS: Final[Mapping[str, WindowsLimit]] = {
    limit.id: limit for area in _AREAS for limit in area.LIMITS
}
