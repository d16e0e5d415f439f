"""The support matrix: what works on Windows, from which release and build on. `SUPPORT` has the records by id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transom.windows.records import Support

_AREAS: Final[tuple[tuple[Support, ...], ...]] = ()

SUPPORT: Final[Mapping[str, Support]] = {record.id: record for area in _AREAS for record in area}
