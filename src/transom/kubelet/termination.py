"""Termination of containers: grace periods, preStop hooks, events, termination messages.

Works without the pod when it is already gone from the API: the container's annotations have the
necessary data.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Coroutine
from typing import Any

import orjson

from transom.client.events import NORMAL, WARNING
from transom.kit.clock import Clock
from transom.kit.goquote import go_quote
from transom.kubelet import labels
from transom.kubelet.actions import FailedProbe
from transom.kubelet.base import KubeletContext
from transom.kubelet.container_gc import remove_log
from transom.kubelet.event_texts import event_texts
from transom.kubelet.interfaces import HookFailure, Hooks
from transom.kubelet.podstate import PodState, container_spec, format_pod, read_pod_state
from transom.kubelet.refs import container_ref
from transom.kubelet.termination_order import TerminationOrder, has_sidecar
from transom.machinery.objects import Object
from transom.runtime.api import Container, RuntimeFailure

log = logging.getLogger("transom.kubelet")

MINIMUM_GRACE = 2
_MESSAGE_BYTES = 4096
_LOG_BYTES, _LOG_LINES = 2048, 80
_LOG_END = 2 << 20  # for this many lines of any length


class KillFailure(Exception):
    """Part of a pod could not be stopped; the text names it."""


class Terminator:
    def __init__(self, env: KubeletContext, hooks: Hooks) -> None:
        self._env = env
        self._hooks = hooks
        self._features = env.config.pod_features
        self._late: set[asyncio.Task[None]] = set()

    # ---- stopping ----

    async def kill_pod(self, pod: Object | None, state: PodState, grace: int | None = None) -> None:
        """Stops all containers at once, sidecars after the others, then the sandboxes. `pod` is
        None when it is no longer known. `grace` overrides the pod's own. Raises KillFailure.
        """
        running = state.running()
        order = None
        if pod is not None and self._features.sidecars and has_sidecar(pod):
            order = TerminationOrder(pod, (c.name for c in running), self._env.clock)
        results = (
            await asyncio.gather(*(self._try_kill(pod, c, grace, order) for c in running))
            if running
            else []
        )
        problems = [text for text in results if text]
        for sandbox in state.sandboxes:
            try:
                await self._env.runtime.stop_sandbox(sandbox.id)
            except RuntimeFailure as failure:
                target = sandbox.config.uid
                problems.append(
                    _result("KillPodSandbox", target, "KillPodSandboxError", str(failure))
                )
        if problems:
            raise KillFailure(
                problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]"
            )

    async def _try_kill(
        self,
        pod: Object | None,
        container: Container,
        grace: int | None,
        order: TerminationOrder | None,
    ) -> str:
        try:
            await self.kill_container(pod, container, grace=grace, order=order)
        except (RuntimeFailure, KillFailure) as failure:
            return _result("KillContainer", container.name, "KillContainerError", str(failure))
        return ""

    async def kill_container(
        self,
        pod: Object | None,
        container: Container,
        message: str = "",
        grace: int | None = None,
        probe: FailedProbe = "",
        order: TerminationOrder | None = None,
    ) -> None:
        """Raises RuntimeFailure, or KillFailure when the pod has no such container."""
        if pod is None:
            pod, spec = restore_specs(container)
        else:
            found = container_spec(pod, container.name)
            if found is None:
                raise KillFailure(
                    "failed to get containerSpec "
                    f'"{container.name}"(id="{self._env.runtime.version.name}://'
                    f'{container.id}") in pod "{format_pod(pod)}" when killing container for '
                    f'reason "{message}"'
                )
            spec = found
        self.event(
            pod,
            container.name,
            NORMAL,
            "Killing",
            message or f"Stopping container {container.name}",
            container.id,
        )
        allowed = self._grace(pod, spec, probe)
        overrides = grace is not None and self._features.grace_before_hooks
        if grace is not None and overrides:
            allowed = grace
        handler = (spec.get("lifecycle") or {}).get("preStop")
        if handler is not None and allowed > 0:
            allowed -= await self._pre_stop(pod, spec, container.id, handler, allowed)
        if order is not None and allowed > 0:
            allowed -= int(await order.wait_for_turn(container.name, allowed))
        allowed = max(allowed, MINIMUM_GRACE)
        if grace is not None and not overrides:
            allowed = grace
        await self._env.runtime.stop_container(container.id, allowed)
        if order is not None:
            order.container_terminated(container.name)

    def _grace(self, pod: Object, spec: Object, probe: FailedProbe) -> int:
        """The grace period of the pod, or that of the probe that failed."""
        if (
            probe
            and self._features.probe_grace_period
            and pod["metadata"].get("deletionGracePeriodSeconds") is None
        ):
            own = (spec.get(f"{probe}Probe") or {}).get("terminationGracePeriodSeconds")
            if own is not None:
                return int(own)
        return _grace(pod)

    async def _pre_stop(
        self, pod: Object, spec: Object, container_id: str, handler: Object, seconds: int
    ) -> int:
        """Returns the whole seconds that it took. A handler that takes too long keeps running until
        its container is gone.
        """

        async def run() -> None:
            try:
                await self._hooks.run(pod, spec, container_id, handler)
            except HookFailure as failure:
                hidden = event_texts(self._env.config.release).hidden_hooks
                shown = "PreStopHook failed" if hidden else str(failure)
                self.event(pod, spec["name"], WARNING, "FailedPreStopHook", shown, container_id)

        start = self._env.clock.monotonic()
        await _within(self._env.clock, seconds, run(), self._late)
        return int(self._env.clock.monotonic() - start)

    async def remove(self, uid: str) -> None:
        """Removes what was stopped from the runtime, with its logs. Raises RuntimeFailure."""
        runtime = self._env.runtime
        state = read_pod_state(runtime, uid)
        for container in state.containers:
            await self.remove_container(container)
        for sandbox in state.sandboxes:
            await runtime.stop_sandbox(sandbox.id)
            try:
                await runtime.remove_sandbox(sandbox.id)
            except RuntimeFailure as failure:
                if failure.code != "NotFound":  # already garbage collected
                    raise
            self._remove_directory(sandbox.config.log_directory)

    async def remove_container(self, container: Container) -> None:
        """With its log. Raises RuntimeFailure."""
        try:
            await self._env.runtime.remove_container(container.id)
        except RuntimeFailure as failure:
            if failure.code != "NotFound":
                raise
        try:
            remove_log(self._env, container)
        except OSError as problem:
            log.warning("the log of %s could not be removed: %s", container.id, problem)

    def _remove_directory(self, path: str) -> None:
        files = self._env.host.files
        try:
            if path and files.exists(path):
                files.remove(path, recursive=True)
        except OSError as problem:
            log.warning("%s could not be removed: %s", path, problem)

    def stop(self) -> None:
        for task in self._late:
            task.cancel()

    # ---- events and messages ----

    def event(
        self,
        pod: Object,
        container: str,
        kind: str,
        reason: str,
        message: str,
        container_id: str = "",
    ) -> None:
        """An event about one container. The text uses its name: its id would make each text
        unique.
        """
        if container_id:
            message = message.replace(container_id, container)
        self._env.events.event(container_ref(pod, container), kind, reason, message)

    def last_words(self, container: Container) -> str:
        """The termination message of a container, from its file or, if the policy allows it, from
        its log.
        """
        policy = container.annotations.get(labels.TERMINATION_POLICY)
        # A container that never started has no log.
        from_log = (
            policy == "FallbackToLogsOnError"
            and container.exit_code != 0
            and container.reason != "ContainerCannotRun"
        )
        path = container.annotations.get(labels.TERMINATION_PATH)
        if path:
            inside = self._env.os.mount_path(path)
            for mount in container.mounts:
                if mount.container_path != inside:
                    continue
                try:
                    directory = mount.volume_path or self._env.os.parent(mount.host_path)
                    text = self._end(mount.host_path, _MESSAGE_BYTES, directory).decode(
                        errors="replace"
                    )
                except OSError as problem:
                    if problem.errno == errno.ENOENT:
                        break
                    return f"Error on reading termination log {mount.host_path}: {problem.strerror}"
                if text or not from_log:
                    return text
                break
        return self._log_end(container.log_path) if from_log else ""

    def _end(self, path: str, size: int, directory: str) -> bytes:
        """The end of a file of any size: a container can make its termination message a terabyte
        long. Does not follow links out of the directory.
        """
        files = self._env.host.files.below(directory)
        return files.read(path, max(0, files.stat(path).size - size), size)

    def _log_end(self, path: str) -> str:
        try:
            data = self._end(path, _LOG_END, self._env.os.parent(path))
        except OSError as problem:
            return f"Error on reading termination message from logs: {problem.strerror}"
        return log_end(data)[-_LOG_BYTES:].decode(errors="replace")


def log_end(data: bytes) -> bytes:
    """The texts of the last lines of a log, whose lines are `TIME STREAM F|P TEXT`; P continues in
    the next line.
    """
    out = bytearray()
    for line in data.splitlines()[-_LOG_LINES:]:
        parts = line.split(b" ", 3)
        if len(parts) == 4:
            out += parts[3]
            if parts[2] != b"P":
                out += b"\n"
    return bytes(out)


def restore_specs(container: Container) -> tuple[Object, Object]:
    """The parts of a pod and its container that are needed to stop it, from labels and
    annotations.
    """
    notes, marks = container.annotations, container.labels
    meta: Object = {
        "name": marks.get(labels.POD_NAME, ""),
        "namespace": marks.get(labels.POD_NAMESPACE, ""),
        "uid": marks.get(labels.POD_UID, ""),
    }
    pod: Object = {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": {}}
    if labels.DELETION_GRACE in notes:
        meta["deletionGracePeriodSeconds"] = int(notes[labels.DELETION_GRACE])
    if labels.TERMINATION_GRACE in notes:
        pod["spec"]["terminationGracePeriodSeconds"] = int(notes[labels.TERMINATION_GRACE])
    spec: Object = {"name": container.name}
    if labels.PRE_STOP in notes:
        spec = orjson.loads(notes[labels.PRE_STOP])
    if labels.PORTS in notes:
        spec["ports"] = orjson.loads(notes[labels.PORTS])
    return pod, spec


def _grace(pod: Object) -> int:
    for value in (
        pod["metadata"].get("deletionGracePeriodSeconds"),
        pod["spec"].get("terminationGracePeriodSeconds"),
    ):
        if value is not None:
            return int(value)
    return MINIMUM_GRACE


def _result(action: str, target: str, kind: str, message: str) -> str:
    return f'failed to "{action}" for "{target}" with {kind}: {go_quote(message)}'


async def _within(
    clock: Clock, seconds: float, work: Coroutine[Any, Any, None], late: set[asyncio.Task[None]]
) -> None:
    """Waits for the work up to a timeout; after that it continues in `late`."""
    task = asyncio.get_running_loop().create_task(work)
    over = asyncio.Event()
    timer = clock.call_later(seconds, over.set)
    task.add_done_callback(lambda _: over.set())
    late.add(task)
    task.add_done_callback(late.discard)
    try:
        await over.wait()
    finally:
        timer.cancel()
