"""Executes the computed `actions`: stops containers, creates the sandbox, starts containers in
order.

Every failure becomes an event and a reason in the container's status; `run` returns whether
everything succeeded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import MappingProxyType

from transom.client.backoff import KeyedBackoff
from transom.client.events import NORMAL, WARNING
from transom.kit.durations import format_duration
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.actions import PodActions
from transom.kubelet.base import KubeletContext
from transom.kubelet.container_gc import link_log
from transom.kubelet.event_texts import event_texts
from transom.kubelet.failures import ClaimFailure, ContainerFailure
from transom.kubelet.interfaces import (
    ClaimDevices,
    ContainerConfigSource,
    HookFailure,
    Hooks,
    ImagePuller,
    StartCounter,
)
from transom.kubelet.labels import container_hash
from transom.kubelet.podstate import PodState, container_spec, format_pod, uid_of
from transom.kubelet.refs import pod_ref
from transom.kubelet.security import effective_security_context
from transom.kubelet.status import WaitingReason
from transom.kubelet.termination import KillFailure, Terminator
from transom.kubelet.workers import PodWorker
from transom.machinery.objects import Object
from transom.machinery.podutil import is_restartable_init_container
from transom.machinery.releases.kubelet import kubelet_has
from transom.runtime.api import Container, Image, RuntimeFailure, Sandbox, SandboxConfig

log = logging.getLogger("transom.kubelet")

_IN_A_ROW = 20  # containers to start before other tasks may run


class _Place(NamedTuple):
    """Where a container starts."""

    sandbox: Sandbox
    config: SandboxConfig
    state: PodState
    volume_images: Mapping[str, Image | ContainerFailure] = MappingProxyType({})  # by volume


class ContainerStarter:
    def __init__(
        self,
        env: KubeletContext,
        images: ImagePuller,
        builder: ContainerConfigSource,
        hooks: Hooks,
        terminator: Terminator,
        claims: ClaimDevices,
        counter: StartCounter,
    ) -> None:
        self._env = env
        self._images = images
        self._builder = builder
        self._hooks = hooks
        self._end = terminator
        self._claims = claims
        self._counter = counter
        self._features = env.config.pod_features
        self._texts = event_texts(env.config.release)

    async def run(
        self, worker: PodWorker, pod: Object, state: PodState, actions: PodActions
    ) -> bool:
        """Raises Interrupted when the pod must terminate during a wait."""
        if actions.create_sandbox and actions.sandbox_id:
            self._record_event(
                pod,
                NORMAL,
                "SandboxChanged",
                "Pod sandbox changed, it will be killed and re-created.",
            )
        try:
            await self._stop(pod, state, actions)
        except (KillFailure, RuntimeFailure) as failure:
            log.warning("pod %s: %s", format_pod(pod), failure)
            return False
        if not (actions.create_sandbox or actions.init or actions.start or actions.ephemeral):
            return True
        place = await self._place(pod, state, actions)
        if place is None:
            return False
        if self._features.image_volumes:
            place = place._replace(volume_images=await self._pull_volumes(worker, pod, place))
        return await self._start_all(worker, pod, place, actions)

    async def _pull_volumes(
        self, worker: PodWorker, pod: Object, place: _Place
    ) -> dict[str, Image | ContainerFailure]:
        """A failure is reported by the containers that mount the volume."""
        out: dict[str, Image | ContainerFailure] = {}
        for volume in pod["spec"].get("volumes") or ():
            source = volume.get("image")
            if source is None:
                continue
            pull = self._images.ensure_volume(pod, source, place.config)
            try:
                out[volume["name"]] = await worker.interruptible(pull)
            except ContainerFailure as failure:
                out[volume["name"]] = failure
        return out

    def _volume_images(self, pod: Object, spec: Object, place: _Place) -> dict[str, Image]:
        """The images of the volumes that the container mounts. Raises ContainerFailure."""
        out: dict[str, Image] = {}
        last: ContainerFailure | None = None
        for mount in spec.get("volumeMounts") or ():
            image = place.volume_images.get(mount["name"])
            if isinstance(image, ContainerFailure):
                last = image
                text = f"Error: {image.reason}"
                self._end.event(pod, spec["name"], WARNING, "Failed", text)
            elif image is not None:
                out[mount["name"]] = image
        if last is not None:
            raise last
        return out

    async def _stop(self, pod: Object, state: PodState, actions: PodActions) -> None:
        inits = {spec["name"] for spec in pod["spec"].get("initContainers") or ()}
        if actions.kill_pod:
            if (
                state.running()
                or any(s.state == "ready" for s in state.sandboxes)
                or actions.sandbox_id
            ):
                await self._end.kill_pod(pod, state)
            if actions.create_sandbox:
                for container in state.containers:
                    if container.name in inits:
                        await self._remove(container)
                return
        else:
            for container, kill in actions.reset:
                if kill:
                    await self._end.kill_container(pod, container)
                await self._end.remove_container(container)
            for container, message, probe in actions.kill:
                await self._end.kill_container(pod, container, message, probe=probe)
        await self._prune(state, inits)

    async def _prune(self, state: PodState, inits: set[str]) -> None:
        """Keeps the last terminated instance of each container for its status."""
        seen = set()
        for container in state.containers:
            if container.state == "exited" or (
                container.state == "unknown" and container.name in inits
            ):
                if container.name in seen:
                    await self._remove(container)
                seen.add(container.name)

    async def _remove(self, container: Container) -> None:
        try:
            await self._end.remove_container(container)
        except RuntimeFailure as failure:
            log.warning("container %s could not be removed: %s", container.id, failure)

    # ---- the sandbox ----

    async def _place(self, pod: Object, state: PodState, actions: PodActions) -> _Place | None:
        runtime = self._env.runtime
        sandbox_id = actions.sandbox_id
        config: SandboxConfig | None = None
        if actions.create_sandbox:
            self._counter.pod()
            try:
                await self._claims.prepare(pod)
            except ClaimFailure as failure:
                self._record_event(
                    pod,
                    WARNING,
                    "FailedPrepareDynamicResources",
                    f"Failed to prepare dynamic resources: {failure}",
                )
                return None
            try:
                config = self._builder.sandbox_config(pod, actions.attempt)
                self._env.host.files.mkdir(config.log_directory, 0o755)
                sandbox_id = await runtime.run_sandbox(
                    config, await self._builder.runtime_handler(pod)
                )
            except (ContainerFailure, RuntimeFailure, OSError) as failure:
                self._counter.pod(failed=True)
                infinitive = kubelet_has(self._env.config.release, "SandboxEventInfinitive")
                verb = "to create" if infinitive else "create"
                self._record_event(
                    pod, WARNING, "FailedCreatePodSandBox", f"Failed {verb} pod sandbox: {failure}"
                )
                return None
        sandbox = next((s for s in runtime.sandboxes(uid_of(pod)) if s.id == sandbox_id), None)
        if sandbox is None:
            self._record_event(
                pod,
                WARNING,
                "FailedPodSandBoxStatus",
                (
                    "Unable to get pod sandbox status: rpc error: code = NotFound desc = "
                    f'sandbox "{sandbox_id}" not found'
                ),
            )
            return None
        return _Place(sandbox, config or sandbox.config, state)

    # ---- containers ----

    async def _start_all(
        self, worker: PodWorker, pod: Object, place: _Place, actions: PodActions
    ) -> bool:
        good = True
        for spec in actions.ephemeral:
            good &= await self._start(worker, pod, spec, place, "ephemeral_container")
        for spec in actions.init:
            if not await self._start(worker, pod, spec, place, "init_container"):
                good = False
                if not (self._features.sidecars and is_restartable_init_container(spec)):
                    return False
        for number, spec in enumerate(actions.start, 1):
            good &= await self._start(worker, pod, spec, place)
            if number % _IN_A_ROW == 0:
                await asyncio.sleep(0)
        return good

    async def _start(
        self,
        worker: PodWorker,
        pod: Object,
        spec: Object,
        place: _Place,
        kind: str = "container",
    ) -> bool:
        name = spec["name"]
        options = effective_security_context(pod, spec).get("windowsOptions") or {}
        host_process, counted = bool(options.get("hostProcess")), False
        try:
            self._back_off(worker, pod, spec, place.state)
            self._counter.container(kind, host_process=host_process)
            counted = True
            volumes = self._volume_images(pod, spec, place)
            image = await worker.interruptible(self._images.ensure(pod, spec, place.config))
            container_id = await self._create(pod, spec, place, image, volumes)
            await self._post_start(pod, spec, container_id)
        except ContainerFailure as failure:
            if counted:
                self._counter.container(kind, host_process=host_process, code=failure.reason)
            worker.reasons[name] = WaitingReason(failure.reason, str(failure))
            return False
        worker.reasons.pop(name, None)
        return True

    def _back_off(self, worker: PodWorker, pod: Object, spec: Object, state: PodState) -> None:
        name = spec["name"]
        ended = next((c for c in state.containers_named(name) if c.state == "exited"), None)
        if ended is None:
            return
        if worker.backoff is None:
            worker.backoff = KeyedBackoff(*self._env.config.crash_loop_backoff, expires=600.0)
        key = (name, container_hash(spec, self._features.short_hash))
        now = self._env.clock.time()
        if worker.backoff.waits(key, ended.finished_at, now):
            text = self._texts.container_backs_off(name, format_pod(pod))
            self._end.event(pod, name, WARNING, "BackOff", text)
            delay = worker.backoff.get(key)
            if self._features.retries_after_backoff:
                ends = ended.finished_at + delay
                worker.backoff_ends = min(ends, worker.backoff_ends or ends)
            raise ContainerFailure(
                "CrashLoopBackOff",
                f"back-off {format_duration(delay)} restarting failed container={name} pod={format_pod(pod)}",
            )
        worker.backoff.next(key, ended.finished_at, now)

    async def _create(
        self,
        pod: Object,
        spec: Object,
        place: _Place,
        image: Image,
        volume_images: Mapping[str, Image],
    ) -> str:
        name = spec["name"]
        runtime = self._env.runtime
        last = place.state.container(name)
        attempt = last.attempt + 1 if last is not None else 0
        try:
            target = spec.get("targetContainerName")
            if (
                target
                and container_spec(pod, target) is not None
                and place.state.container(target) is None
            ):
                raise ContainerFailure(
                    "CreateContainerConfigError", f"unable to find target container {target}"
                )
            config = await self._builder.container_config(
                pod, spec, place.sandbox, image, attempt, volume_images
            )
        except ContainerFailure as failure:
            self._end.event(pod, name, WARNING, "Failed", f"Error: {failure}")
            raise
        try:
            container_id = await runtime.create_container(place.sandbox.id, config)
        except RuntimeFailure as failure:
            self._end.event(pod, name, WARNING, "Failed", f"Error: {failure.description}")
            raise ContainerFailure("CreateContainerError", failure.description) from failure
        created = self._texts.container_created(name)
        self._end.event(pod, name, NORMAL, "Created", created, container_id)
        try:
            await runtime.start_container(container_id)
        except RuntimeFailure as failure:
            self._end.event(
                pod, name, WARNING, "Failed", f"Error: {failure.description}", container_id
            )
            raise ContainerFailure("RunContainerError", failure.description) from failure
        begun = self._texts.container_started(name)
        self._end.event(pod, name, NORMAL, "Started", begun, container_id)
        started = runtime.container(container_id)
        if started is not None:
            link_log(self._env, started)
        return container_id

    async def _post_start(self, pod: Object, spec: Object, container_id: str) -> None:
        handler = (spec.get("lifecycle") or {}).get("postStart")
        if handler is None:
            return
        try:
            await self._hooks.run(pod, spec, container_id, handler)
        except HookFailure as failure:
            shown = "PostStartHook failed" if self._texts.hidden_hooks else str(failure)
            self._end.event(pod, spec["name"], WARNING, "FailedPostStartHook", shown, container_id)
            container = self._env.runtime.container(container_id)
            if container is not None:
                try:
                    await self._end.kill_container(pod, container, "FailedPostStartHook")
                except RuntimeFailure as problem:
                    log.warning("container %s could not be stopped: %s", container_id, problem)
            reason = "PostStartHookError"
            if not self._texts.hook_reason:
                reason += f": {failure.error}"
            raise ContainerFailure(reason, str(failure)) from failure

    def _record_event(self, pod: Object, kind: str, reason: str, message: str) -> None:
        self._env.events.event(pod_ref(pod), kind, reason, message)
