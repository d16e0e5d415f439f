"""Graceful node shutdown: when the machine shuts down, pods are terminated by priority within the
configured periods, and new pods are rejected.

The machine calls `NodeShutdownManager.shut_down` and waits for it, as logind waits for the
kubelet's inhibitor lock.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import orjson

from transom.client.events import NORMAL
from transom.kit.clock import parse_rfc3339, rfc3339
from transom.kit.durations import format_duration
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.base import KubeletContext
from transom.kubelet.config import KubeletConfig
from transom.kubelet.failures import PodRejection
from transom.kubelet.interfaces import KillPod
from transom.kubelet.labels import is_critical
from transom.kubelet.podstate import format_pod, uid_of
from transom.kubelet.refs import node_ref
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.kubelet import kubelet_has
from transom.machines.smallfiles import read_small_file

log = logging.getLogger("transom.kubelet")

SHUTDOWN_STATUS: Final = "node is shutting down"
SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000
_UNMOUNT_POLL: Final = 0.3
_STATE_FILE: Final = "graceful_node_shutdown_state"
_NEVER: Final = "0001-01-01T00:00:00Z"  # Go's zero time
CountShutdown = Callable[[float, float], None]
"""`count(started, ended)`: the times of the last shutdown, 0 for none."""


class ShutdownTexts(NamedTuple):
    reason: str
    message: str
    rejected_reason: str
    rejected_message: str


_TEXTS: Final = ShutdownTexts(
    "Terminated",
    "Pod was terminated in response to imminent node shutdown.",
    "NodeShutdown",
    "Pod was rejected as the node is shutting down.",
)
_OLDER_TEXTS: Final = ShutdownTexts(
    "Shutdown",
    "Node is shutting, evicting pods",
    "Shutdown",
    "Node is in progress of shutting down, not admitting any new pods",
)


class ShutdownPeriod(NamedTuple):
    """How long pods of this priority, up to the next one, may take."""

    priority: int
    seconds: int


# ---- configuration ----


def shutdown_periods(config: KubeletConfig) -> tuple[ShutdownPeriod, ...]:
    """The periods in the order of the shutdown; none when it is not configured."""
    if config.shutdown_grace_period_by_pod_priority and _enabled(config)(
        "GracefulNodeShutdownBasedOnPodPriority"
    ):
        return tuple(
            sorted(ShutdownPeriod(*p) for p in config.shutdown_grace_period_by_pod_priority)
        )
    total = config.shutdown_grace_period
    critical = config.shutdown_grace_period_critical_pods
    if total == 0 or critical > total:
        return ()
    return (
        ShutdownPeriod(0, int(total - critical)),
        ShutdownPeriod(SYSTEM_CRITICAL_PRIORITY, int(critical)),
    )


def shutdown_configuration_problems(config: KubeletConfig) -> list[str]:
    """Why a kubelet refuses the shutdown periods of its configuration."""
    enabled = _enabled(config)
    newer = kubelet_has(Release(*config.release), "ShutdownFieldNames")
    total, critical = config.shutdown_grace_period, config.shutdown_grace_period_critical_pods
    first = "s" if newer else "S"
    total_field, critical_field = (
        f"{first}hutdownGracePeriod",
        f"{first}hutdownGracePeriodCriticalPods",
    )
    out = []
    if not enabled("GracefulNodeShutdown"):
        if total > 0 or critical > 0:
            out.append(
                f"{first}pecifying {total_field} or {critical_field} requires feature gate "
                "GracefulNodeShutdown"
            )
    else:
        if critical > total or (not newer and (total < 0 or critical < 0)):
            limit = (
                f"{critical_field} {format_duration(critical)} must be <= {total_field} "
                f"{format_duration(total)}"
            )
            out.append(
                limit
                if newer
                else f"{total_field} {format_duration(total)} must be >= 0, {critical_field} "
                f"{format_duration(critical)} must be >= 0, and {limit}"
            )
        out += [
            f"{name} {format_duration(seconds)} must be either zero or otherwise >= 1 sec"
            for name, seconds in ((total_field, total), (critical_field, critical))
            if (seconds < 0 and newer) or 0 < seconds < 1
        ]
    if config.shutdown_grace_period_by_pod_priority:
        if not enabled("GracefulNodeShutdownBasedOnPodPriority"):
            out.append(
                "Specifying shutdownGracePeriodByPodPriority requires feature gate "
                "GracefulNodeShutdownBasedOnPodPriority"
            )
        elif total > 0 or critical > 0:
            out.append(
                "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at "
                "the same time"
            )
    return out


def _enabled(config: KubeletConfig) -> Callable[[str], bool]:
    return FeatureSet(Release(*config.release), config.feature_gates).enabled


# ---- the shutdown ----


class NodeShutdownManager:
    """`mounted`: whether the pod of this uid has volumes on the node. `changed` reports the node's
    status.
    """

    __slots__ = (
        "_active_pods",
        "_changed",
        "_count",
        "_env",
        "_groups",
        "_kill",
        "_mounted",
        "_periods",
        "_shutting_down",
        "_texts",
        "_waits_for_unmounts",
    )

    def __init__(
        self,
        env: KubeletContext,
        active_pods: Callable[[], Sequence[Object]],
        kill: KillPod,
        mounted: Callable[[str], bool],
        changed: Callable[[], None],
        count: CountShutdown,
    ) -> None:
        release = Release(*env.config.release)
        self._count = (
            count if _enabled(env.config)("GracefulNodeShutdownBasedOnPodPriority") else None
        )
        self._env = env
        self._active_pods = active_pods
        self._kill = kill
        self._mounted = mounted
        self._changed = changed
        gate = "WindowsGracefulNodeShutdown" if _is_windows(env) else "GracefulNodeShutdown"
        self._periods = shutdown_periods(env.config) if _enabled(env.config)(gate) else ()
        self._texts = _TEXTS if kubelet_has(release, "ShutdownTexts") else _OLDER_TEXTS
        self._groups = kubelet_has(release, "ShutdownGroups")
        self._waits_for_unmounts = kubelet_has(release, "ShutdownUnmounts")
        self._shutting_down = False
        if self._count is not None:
            self._count(*(self._recorded_times() if self._periods else (0.0, 0.0)))

    @property
    def enabled(self) -> bool:
        return bool(self._periods)

    def status(self) -> str:
        """Why the node is not ready; empty while it does not shut down."""
        return SHUTDOWN_STATUS if self._shutting_down else ""

    def admit(self, pod: Object) -> PodRejection | None:
        if not self._shutting_down:
            return None
        return PodRejection(self._texts.rejected_reason, self._texts.rejected_message)

    async def shut_down(self) -> None:
        """Returns when the pods have ended or their periods are over."""
        if not self._periods:
            return
        if self._groups:
            kind = "preshutdown" if _is_windows(self._env) else "shutdown"
            self._env.events.event(
                node_ref(self._env.config.node_name),
                NORMAL,
                "NodeShutdown",
                f"Shutdown manager detected {kind} event",
            )
        self._shutting_down = True
        self._changed()
        began = self._env.clock.time()
        self._record_times(began, 0.0)
        await self._end_groups()
        self._record_times(began, self._env.clock.time())

    async def _end_groups(self) -> None:
        groups = group_pods_by_priority(
            self._periods, self._active_pods(), pod_priority if self._groups else _pod_importance
        )
        for period, pods in groups.items():
            started = self._env.clock.monotonic()
            if pods:
                await self._within(period.seconds, self._kill_group(period, pods))
            if not self._groups:
                # These releases give every group its whole period.
                rest = period.seconds - (self._env.clock.monotonic() - started)
                if rest > 0 and period != self._periods[-1]:
                    await self._env.clock.sleep(rest)

    def _recorded_times(self) -> tuple[float, float]:
        """Of the last shutdown, from the state file; 0 if there was none."""
        try:
            content = orjson.loads(read_small_file(self._env.host.files, self._state_path))
            return (_unix_time(content["startTime"]), _unix_time(content["endTime"]))
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0, 0.0

    def _record_times(self, started: float, ended: float) -> None:
        if self._count is None:
            return
        content = {"startTime": rfc3339(started), "endTime": rfc3339(ended) if ended else _NEVER}
        try:
            self._env.host.files.write(self._state_path, orjson.dumps(content))
        except OSError as problem:
            log.warning("the state of the node shutdown cannot be written: %s", problem)
        self._count(started, ended)

    @property
    def _state_path(self) -> str:
        return self._env.os.join(self._env.config.root_dir, _STATE_FILE)

    async def _kill_group(self, period: ShutdownPeriod, pods: Sequence[Object]) -> None:
        await asyncio.gather(*(self._kill_pod(period, pod) for pod in pods))
        if self._waits_for_unmounts:
            while any(self._mounted(uid_of(pod)) for pod in pods):
                await self._env.clock.sleep(_UNMOUNT_POLL)

    async def _kill_pod(self, period: ShutdownPeriod, pod: Object) -> None:
        own = pod["spec"].get("terminationGracePeriodSeconds")
        grace = period.seconds if own is None else min(own, period.seconds)
        log.info("pod %s ends with the node, within %s s", format_pod(pod), grace)
        await self._kill(pod, self._texts.reason, self._texts.message, grace)

    async def _within(self, seconds: float, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        timer = asyncio.ensure_future(self._env.clock.sleep(seconds))
        try:
            await asyncio.wait((task, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (task, timer):
                one.cancel()
            await asyncio.gather(task, timer, return_exceptions=True)


def _unix_time(text: str) -> float:
    return 0.0 if text == _NEVER else parse_rfc3339(text)


def group_pods_by_priority(
    periods: Sequence[ShutdownPeriod],
    pods: Sequence[Object],
    priority: Callable[[Object], int],
) -> Mapping[ShutdownPeriod, list[Object]]:
    """Each pod belongs to the highest period that is not above its priority, or to the lowest."""
    groups: dict[ShutdownPeriod, list[Object]] = {period: [] for period in periods}
    priorities = [period.priority for period in periods]
    for pod in pods:
        index = bisect_right(priorities, priority(pod)) - 1
        groups[periods[max(index, 0)]].append(pod)
    return groups


def pod_priority(pod: Object) -> int:
    return pod["spec"].get("priority") or 0


def _pod_importance(pod: Object) -> int:
    """In releases that know critical pods only, static pods among them."""
    return SYSTEM_CRITICAL_PRIORITY if is_critical(pod) else 0


def _is_windows(env: KubeletContext) -> bool:
    return env.os.name == "windows"
