"""The endpoint /transom/clock of the API server: the cluster's time, and how tests advance it.

It is authorized like any other non-resource path, so only the cluster's admin may use it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import orjson

from transom.http.messages import Answer, HttpRequest, HttpResponse
from transom.kit.clock import Clock, rfc3339_micro
from transom.kit.lazy import lazy_import

if TYPE_CHECKING:
    from transom.kit import adjustable_clock
    from transom.kit.adjustable_clock import AdjustableClock
else:
    adjustable_clock = lazy_import("transom.kit.adjustable_clock")

CLOCK_ROOT = "/transom/clock"
MAX_ADVANCE_SECONDS = 366 * 86400.0


def make_adjustable_clock() -> AdjustableClock:
    return adjustable_clock.AdjustableClock()


class ClockControl:
    """`adjustable` is None in a cluster that runs in real time."""

    def __init__(self, clock: Clock, adjustable: AdjustableClock | None, option: str) -> None:
        """`option` is the one that selects the cluster, for hints."""
        self._option = option
        self._clock = clock
        self._adjustable = adjustable

    async def __call__(self, request: HttpRequest) -> Answer:
        if request.path != CLOCK_ROOT or request.method not in ("GET", "POST"):
            return _answer(404, {"message": f"there is no {request.method} {request.path}"})
        if request.method == "POST":
            if self._adjustable is None:
                return _answer(
                    409,
                    {
                        "message": "the cluster runs in real time",
                        "hint": f"start it with virtual time: transom down{self._option}, then "
                        f"transom up{self._option} --virtual-time; in Python "
                        "Cluster(virtual_time=True)",
                    },
                )
            seconds = _advance_seconds(request.body)
            if seconds is None:
                return _answer(400, {"message": "advanceSeconds must be a number of seconds"})
            await self._adjustable.advance(seconds)
        return _answer(
            200,
            {"time": rfc3339_micro(self._clock.time()), "virtual": self._adjustable is not None},
        )


def _advance_seconds(body: bytes) -> float | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    seconds = document.get("advanceSeconds") if isinstance(document, dict) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    valid = math.isfinite(seconds) and 0 <= seconds <= MAX_ADVANCE_SECONDS
    return float(seconds) if valid else None


def _answer(status: int, value: dict[str, Any]) -> HttpResponse:
    return HttpResponse(
        status, [(b"Content-Type", b"application/json")], orjson.dumps(value) + b"\n"
    )
