"""The limits registry: every limit of Windows as a record. `LIMITS` has them by id, in the order of the areas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transom.windows.limits import (
    api,
    containers,
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
from transom.windows.records import Limit

_AREAS: Final = (
    systems, pods, containers, security, resources, storage, network, services, dns, nodes, runtime, api,
)

LIMITS: Final[Mapping[str, Limit]] = {limit.id: limit for area in _AREAS for limit in area.LIMITS}
