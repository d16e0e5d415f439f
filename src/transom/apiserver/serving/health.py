"""/healthz, /livez and /readyz: named checks, in the form of
k8s.io/apiserver/pkg/server/healthz.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from transom.http.messages import HttpRequest, HttpResponse, text_response
from transom.kit.goquote import go_quote
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.health_checks import health_check_names, readiness_check_names
from transom.store.api import Store

log = logging.getLogger("transom.apiserver")

# Kubernetes has no such check; it is listed while it fails.
LOOP_CHECK: Final = "event-loop"

_BEAT = 1.0
MOST_LAG = 5.0


class LoopMonitor:
    """The lag of the event loop, measured once a second."""

    def __init__(self) -> None:
        self.lag = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._now: Callable[[], float] = lambda: 0.0

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self._due = loop.time() + _BEAT
        self._handle = loop.call_later(_BEAT, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lag = max(0.0, loop.time() - self._due)
        self._due = loop.time() + _BEAT
        self._handle = loop.call_later(_BEAT, self._beat, loop)

    def current(self) -> float:
        """The lag of the last beat, or of the one that is overdue."""
        return self.lag if self._handle is None else max(self.lag, self._now() - self._due)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class HealthEndpoints:
    """The checks of the release. Those that are not named in `problem` succeed: what they check is
    ready before the server responds at all; monitoring requests the names.
    """

    def __init__(
        self,
        store: Store,
        is_ready: Callable[[], bool],
        loop: LoopMonitor,
        features: FeatureSet,
    ) -> None:
        health, readiness = health_check_names(features), readiness_check_names(features)
        self.names: Final = {"healthz": health, "livez": health, "readyz": readiness}
        self._store = store
        self._is_ready = is_ready
        self._loop = loop

    def problem(self, check: str) -> str:
        """Why a check fails; empty if it succeeds."""
        if check in ("etcd", "etcd-readiness"):
            health = self._store.health()
            return health.problem or health.damage
        if check == LOOP_CHECK:
            lag = self._loop.current()
            return f"the event loop is {lag:.1f} s late" if lag > MOST_LAG else ""
        if check == "shutdown" and not self._is_ready():
            return "process is shutting down"
        return ""

    def answer(self, request: HttpRequest) -> HttpResponse:
        root, _, check = request.path.lstrip("/").partition("/")
        names = self.names[root]
        if check:
            is_known = check in names or check == LOOP_CHECK
            return self._one(check) if is_known else text_response(404, "404 page not found\n")
        if self.problem(LOOP_CHECK):
            names = (*names, LOOP_CHECK)
        return self._all(
            root, names, set(request.query.get("exclude", ())), verbose="verbose" in request.query
        )

    def _one(self, check: str) -> HttpResponse:
        problem = self.problem(check)
        return (
            text_response(500, f"internal server error: {problem}\n")
            if problem
            else text_response(200, "ok")
        )

    def _all(
        self, root: str, names: Sequence[str], excluded: set[str], *, verbose: bool
    ) -> HttpResponse:
        lines: list[str] = []
        failed: list[str] = []
        for name in names:
            if name in excluded:
                excluded.discard(name)
                lines.append(f"[+]{name} excluded: ok")
            elif problem := self.problem(name):
                # Unauthenticated clients may read this; the reason is only in the individual check.
                lines.append(f"[-]{name} failed: reason withheld")
                failed.append(f"{name}: {problem}")
            else:
                lines.append(f"[+]{name} ok")
        if excluded:
            unknown = ",".join(go_quote(name) for name in sorted(excluded))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}")
        if failed:
            log.warning("%s check failed: %s", root, "; ".join(failed))
            return text_response(500, "\n".join([*lines, f"{root} check failed"]) + "\n")
        if not verbose:
            return text_response(200, "ok")
        return text_response(200, "\n".join([*lines, f"{root} check passed"]) + "\n")
