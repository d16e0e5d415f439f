"""One probe of one container: its thresholds and its schedule.

A worker keeps the schedule from when the pod was added, whatever happens to the container, and has
a timer only while its container runs and its result matters: most probes of a large cluster cost
nothing most of the time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from transom.client.events import WARNING as WARNING_EVENT
from transom.kit.clock import Timer
from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.base import KubeletContext
from transom.kubelet.event_texts import event_texts
from transom.machinery.objects import Object
from transom.runtime.api import Container

if TYPE_CHECKING:
    from transom.kubelet.prober import handlers
    from transom.kubelet.prober.handlers import Handler, ProbeError, ProbeOutcome
else:
    handlers = lazy_import("transom.kubelet.prober.handlers")

log = logging.getLogger("transom.kubelet")

Kind = Literal["startup", "readiness", "liveness"]
FIELDS: dict[Kind, str] = {
    "startup": "startupProbe",
    "readiness": "readinessProbe",
    "liveness": "livenessProbe",
}
_TITLES: dict[Kind, str] = {"startup": "Startup", "readiness": "Readiness", "liveness": "Liveness"}
# The result before the first probe; None is neither.
INITIAL: dict[Kind, bool | None] = {"startup": None, "readiness": False, "liveness": True}
_TRIES = 3


class ProbedContainer(NamedTuple):
    """The parts of a pod that a worker needs, so that it does not keep the whole object alive."""

    uid: str
    ref: Object
    name: str  # as used in messages
    host_network: bool
    deleting: bool


class ProbeWorker:
    __slots__ = (
        "_due",
        "_env",
        "_failures",
        "_handler",
        "_initial_delay",
        "_last",
        "_path",
        "_period",
        "_report",
        "_run",
        "_successes",
        "_task",
        "_timer",
        "container",
        "container_id",
        "counts",
        "hold",
        "kind",
        "pod",
    )

    def __init__(
        self,
        env: KubeletContext,
        kind: Kind,
        pod: ProbedContainer,
        path: str,
        container: Object,
        delay: float,
        report: Callable[[ProbeWorker, bool], None],
    ) -> None:
        probe = container[FIELDS[kind]]
        self._env = env
        self._period = float(probe.get("periodSeconds") or 10)
        self._initial_delay = probe.get("initialDelaySeconds") or 0
        self._failures = probe.get("failureThreshold") or 3
        self._successes = probe.get("successThreshold") or 1
        self._handler: Handler = handlers.make_probe_handler(env, probe, container, pod.name)
        self._path = path
        self._report = report
        self._due = env.clock.monotonic() + delay * self._period  # of the next probe
        self._last: bool | None = None
        self._run = 0
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self.kind: Kind = kind
        self.pod = pod
        self.container: str = container["name"]
        self.container_id = ""
        self.hold = False
        self.counts = [0, 0]  # of failures and successes

    def follow(self, container_id: str) -> None:
        """Switches to a new container of that name."""
        self.pause()
        self.container_id = container_id
        self.hold = False

    def arm(self, running: Container) -> None:
        """Probes at the first tick after the initial delay."""
        if self._timer is not None or self._task is not None:
            return
        clock = self._env.clock
        now = clock.monotonic()
        # Start times are known in whole seconds.
        earliest = now + max(
            0.0, math.floor(running.started_at) + self._initial_delay - clock.time()
        )
        if self._due < earliest:
            self._due += math.ceil((earliest - self._due) / self._period) * self._period
        self._timer = clock.call_later(self._due - now, self._begin)

    def pause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _begin(self) -> None:
        self._timer = None
        if self._running() is not None:
            self._task = asyncio.get_running_loop().create_task(self._probe())

    async def _probe(self) -> None:
        try:
            outcome = await self._attempt()
        except Exception:
            # A handler that raises must not end all further probes.
            log.exception("the %s probe of %s broke", self.kind, self.pod.name)
            outcome = None
        self._task = None
        self._next_beat()
        if outcome is not None:
            self._count_result(outcome.kind != handlers.FAILURE)
        self._rearm()

    def _next_beat(self) -> None:
        """One missed tick is made up for immediately, as with Go's ticker; more are dropped."""
        now = self._env.clock.monotonic()
        following = self._due + self._period
        if following <= now:
            beats = math.floor((now - self._due) / self._period)
            self._due += beats * self._period
        else:
            self._due = following

    def _rearm(self) -> None:
        container = self._running()
        if container is not None and not self.hold and self._task is None:
            self.arm(container)

    def _running(self) -> Container | None:
        container = self._env.runtime.container(self.container_id)
        return container if container is not None and container.state == "running" else None

    async def _attempt(self) -> ProbeOutcome | None:
        """The outcome, None when there is none that counts. Records the events."""
        title = _TITLES[self.kind]
        problem: ProbeError | None = None
        for _ in range(_TRIES):
            try:
                outcome = await self._handler(
                    handlers.ProbeTarget(self.container_id, self._pod_ip())
                )
            except handlers.ProbeError as error:
                problem = error
                continue
            if outcome.kind == handlers.FAILURE:
                self._record_event("Unhealthy", f"{title} probe failed: {outcome.output}")
            elif outcome.kind == handlers.WARNING:
                self._record_event("ProbeWarning", f"{title} probe warning: {outcome.output}")
            return outcome
        text = event_texts(self._env.config.release).probe_errored(title, str(problem))
        self._record_event("Unhealthy", text)
        return None

    def _count_result(self, good: bool) -> None:
        self.counts[good] += 1
        if self._last is good:
            self._run += 1
        else:
            self._last, self._run = good, 1
        if self._run < (self._successes if good else self._failures):
            return
        if not good and self.kind != "readiness":
            # The container will be stopped: pause until there is a new one.
            self.hold = True
            self._run = 0
        self._report(self, good)

    def _pod_ip(self) -> str:
        if self.pod.host_network:
            return self._env.config.node_ip
        return next((s.ips[0] for s in self._env.runtime.sandboxes(self.pod.uid) if s.ips), "")

    def _record_event(self, reason: str, message: str) -> None:
        self._env.events.event(
            {**self.pod.ref, "fieldPath": self._path}, WARNING_EVENT, reason, message
        )
