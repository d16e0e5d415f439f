"""The support matrix: what works on Windows, from which release and build on. `SUPPORT` has the
records by id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transom.windows.records import WindowsSupport
from transom.windows.support import (
    api,
    current,
    network,
    plans,
    pods,
    resources,
    runtime,
    services,
    storage,
    systems,
    troubleshooting,
)

_AREAS: Final = (
    systems,
    pods,
    services,
    runtime,
    storage,
    network,
    resources,
    api,
    plans,
    troubleshooting,
    current,
)

SUPPORT: Final[Mapping[str, WindowsSupport]] = {
    record.id: record for area in _AREAS for record in area.SUPPORT
}
