"""Computes the actions that bring a pod to its desired state: a pure function of the pod, the
runtime's state, probe results and the features of the release.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from transom.kit.named_tuple import NamedTuple
from transom.kubelet.features import PodFeatures
from transom.kubelet.labels import HASH, container_hash
from transom.kubelet.podstate import PodState, is_deleted, is_host_network
from transom.kubelet.restart_all import ContainerReset, containers_to_reset
from transom.machinery.objects import Object
from transom.machinery.podutil import container_should_restart, is_restartable_init_container
from transom.runtime.api import Container

Probed = Callable[[str], bool | None]
"""The probe result by container id; None if there is no result."""


ResizeAction = Callable[[Object, Container], str]
"""What a running container needs to get the resources of its spec: "", update or restart."""


def no_resize(spec: Object, container: Container) -> str:
    return ""


FailedProbe = Literal["", "liveness", "startup"]


class KillReason(NamedTuple):
    container: Container
    message: str
    probe: FailedProbe = ""


class PodActions(NamedTuple):
    """`kill_pod` stops all containers and the sandbox; `create_sandbox` creates a new sandbox with
    this attempt to replace `sandbox_id`. `start` lists the containers to start, `init` the init
    containers: the next one to run, and sidecars.
    """

    kill_pod: bool = False
    create_sandbox: bool = False
    sandbox_id: str = ""
    attempt: int = 0
    init: tuple[Object, ...] = ()
    start: tuple[Object, ...] = ()
    ephemeral: tuple[Object, ...] = ()
    kill: tuple[KillReason, ...] = ()
    update: tuple[tuple[Object, Container], ...] = ()  # containers that get other limits
    resize_pod: bool = False  # the pod as a whole gets other limits
    reset: tuple[ContainerReset, ...] = ()  # containers to remove before all of them start again

    def __bool__(self) -> bool:
        """Whether any action is needed."""
        return bool(
            self.kill_pod
            or self.create_sandbox
            or self.init
            or self.start
            or self.ephemeral
            or self.kill
            or self.update
            or self.resize_pod
            or self.reset
        )


def compute_pod_actions(
    pod: Object,
    state: PodState,
    liveness: Probed,
    startup: Probed,
    features: PodFeatures,
    resize: ResizeAction = no_resize,
    *,
    restart_all: bool = False,
) -> PodActions:
    changed, attempt, sandbox_id = sandbox_changed(pod, state)
    if restart_all and not changed:
        return PodActions(
            sandbox_id=sandbox_id, attempt=attempt, reset=containers_to_reset(pod, state)
        )
    if changed:
        return _new_sandbox(pod, state, attempt, sandbox_id, features)

    # Ephemeral containers start once, whatever the init containers do.
    ephemeral = tuple(
        c
        for c in pod["spec"].get("ephemeralContainers") or ()
        if state.container(c["name"]) is None
    )
    base = PodActions(sandbox_id=sandbox_id, attempt=attempt, ephemeral=ephemeral)
    probes = _Probes(liveness, startup, resize)
    if features.sidecars:
        return _with_sidecars(pod, state, base, probes, features)

    last, following, done = next_init(pod, state)
    if not done:
        return base if following is None else _initialise(pod, base, last, following)
    return _containers(pod, state, base, probes, features)


class _Probes(NamedTuple):
    liveness: Probed
    startup: Probed
    resize: ResizeAction

    def failed(self, container: Container) -> FailedProbe:
        if self.liveness(container.id) is False:
            return "liveness"
        return "startup" if self.startup(container.id) is False else ""


def sandbox_changed(pod: Object, state: PodState) -> tuple[bool, int, str]:
    if not state.sandboxes:
        return True, 0, ""
    newest = state.sandboxes[0]
    attempt = newest.config.attempt
    if sum(s.state == "ready" for s in state.sandboxes) > 1 or newest.state != "ready":
        return True, attempt + 1, newest.id
    if newest.config.linux.host_network != is_host_network(pod):
        return True, attempt + 1, ""
    if not is_host_network(pod) and not newest.ips:
        return True, attempt + 1, newest.id
    return False, attempt, newest.id


def _new_sandbox(
    pod: Object, state: PodState, attempt: int, sandbox_id: str, features: PodFeatures
) -> PodActions:
    actions = PodActions(kill_pod=True, sandbox_id=sandbox_id, attempt=attempt)
    if not _restarts(pod) and attempt and state.containers:
        return actions  # it has run once and is never restarted
    start = tuple(
        c
        for c in pod["spec"]["containers"]
        if not (_restart_policy(c, pod, features) == "OnFailure" and _succeeded(c, state))
    )
    if not start and _was_initialized(pod, state, features):
        return actions
    actions = actions._replace(create_sandbox=True)
    if pod["spec"].get("initContainers"):
        return actions._replace(init=(pod["spec"]["initContainers"][0],))
    return actions._replace(start=start)


def _was_initialized(pod: Object, state: PodState, features: PodFeatures) -> bool:
    if features.sidecars:
        return has_regular_container(pod, state)
    return next_init(pod, state)[2]


def has_regular_container(pod: Object, state: PodState) -> bool:
    """Whether the runtime has any of the pod's regular containers."""
    return any(state.container(spec["name"]) is not None for spec in pod["spec"]["containers"])


def _initialise(
    pod: Object, base: PodActions, last: Container | None, following: Object
) -> PodActions:
    if last is not None and _failed(last) and not _restarts(pod):
        return base._replace(kill_pod=True)
    if last is not None and last.state == "unknown":
        # It may still be running; never run two instances of a container.
        return base._replace(
            init=(following,),
            kill=(
                KillReason(
                    last, 'Init container is in "unknown" state, try killing it before restart'
                ),
            ),
        )
    return base._replace(init=(following,))


def _with_sidecars(
    pod: Object, state: PodState, base: PodActions, probes: _Probes, features: PodFeatures
) -> PodActions:
    init = _InitActions(pod, state, probes, features)
    if init.kill_pod or not init.done:
        return base._replace(init=tuple(init.start), kill=tuple(init.kill), kill_pod=init.kill_pod)
    base = base._replace(init=tuple(init.start), kill=tuple(init.kill), update=tuple(init.update))
    actions = _containers(pod, state, base, probes, features)
    # Sidecars do not keep a pod alive.
    return actions._replace(init=()) if actions.kill_pod else actions


def _containers(
    pod: Object, state: PodState, base: PodActions, probes: _Probes, features: PodFeatures
) -> PodActions:
    start: list[Object] = []
    kill: list[KillReason] = [*base.kill]
    update = [*base.update]
    keep = 0
    for spec in pod["spec"]["containers"]:
        container = state.container(spec["name"])
        if container is None or container.state != "running":
            if should_restart(spec, pod, state, features):
                start.append(spec)
                if container is not None and container.state == "unknown":
                    kill.append(
                        KillReason(
                            container,
                            'Container is in "unknown" state, try killing it before restart',
                        )
                    )
            continue
        restart = _restart_policy(spec, pod, features) != "Never"
        failed: FailedProbe = ""
        if _changed(spec, container, features):
            message = f"Container {spec['name']} definition changed"
            restart = True
        elif failed := probes.failed(container):
            message = f"Container {spec['name']} failed {failed} probe"
        elif (change := probes.resize(spec, container)) == "restart":
            start.append(spec)
            kill.append(KillReason(container, _resized(spec)))
            continue
        else:
            keep += 1
            if change:
                update.append((spec, container))
            continue
        if restart:
            message += ", will be restarted"
            start.append(spec)
        kill.append(KillReason(container, message, failed))
    return base._replace(
        start=tuple(start),
        kill=tuple(kill),
        update=tuple(update),
        kill_pod=not keep and not start,
    )


def _resized(spec: Object) -> str:
    return f"Container {spec['name']} resize requires restart"


def _changed(spec: Object, container: Container, features: PodFeatures) -> bool:
    return container.annotations.get(HASH) != container_hash(spec, features.short_hash)


class _InitActions:
    """The actions for the init containers of a release with sidecars. Completed init containers
    may be gone from the runtime, so it looks for the last one that is known.
    """

    def __init__(
        self, pod: Object, state: PodState, probes: _Probes, features: PodFeatures
    ) -> None:
        self._pod = pod
        self._state = state
        self._probes = probes
        self._features = features
        self._specs: list[Object] = pod["spec"].get("initContainers") or []
        self.start: list[Object] = []
        self.kill: list[KillReason] = []
        self.update: list[tuple[Object, Container]] = []
        self.kill_pod = False
        found = (state.container(spec["name"]) for spec in pod["spec"]["containers"])
        self.done = not self._specs or any(
            c is not None and c.state in ("created", "running") for c in found
        )
        if self._specs:
            self._compute()

    def _compute(self) -> None:
        before = self.done  # whether the containers up to this one have been initialized
        for index in reversed(range(len(self._specs))):
            spec = self._specs[index]
            container = self._state.container(spec["name"])
            sidecar = is_restartable_init_container(spec)
            if container is None:
                if before and sidecar:
                    self.start.append(spec)
                continue
            if before and not sidecar:
                continue
            if sidecar:
                self._sidecar(index, container, before)
            else:
                self._regular(index, container)
            if self.kill_pod:
                self.start = []
                return
            before = True
        if not before:
            self.start.append(self._specs[0])
        self.start.reverse()

    def _initialized(self, index: int) -> None:
        """The container has done its part: the next one follows."""
        if index == len(self._specs) - 1:
            self.done = True
        else:
            self.start.append(self._specs[index + 1])

    def _regular(self, index: int, container: Container) -> None:
        spec = self._specs[index]
        if container.state == "running":
            return
        if container.state == "created":
            self.start.append(spec)
        elif container.state == "unknown":
            if _restart_policy(spec, self._pod, self._features) == "Never":
                self.kill_pod = True
                return
            self._restart_unknown(spec, container)
        elif not container.exit_code:
            self._initialized(index)
        elif self._restarts(spec):
            self.start.append(spec)
        else:
            self.kill_pod = True

    def _restarts(self, spec: Object) -> bool:
        if self._features.restart_rules:
            return should_restart(spec, self._pod, self._state, self._features)
        return _restarts(self._pod)

    def _restart_unknown(self, spec: Object, container: Container) -> None:
        message = 'Init container is in "unknown" state, try killing it before restart'
        self.kill.append(KillReason(container, message))
        self.start.append(spec)

    def _sidecar(self, index: int, container: Container, before: bool) -> None:
        spec = self._specs[index]
        if container.state == "unknown":
            self._restart_unknown(spec, container)
        elif container.state != "running":
            self.start.append(spec)
        else:
            self._running_sidecar(index, container, before)

    def _running_sidecar(self, index: int, container: Container, before: bool) -> None:
        spec = self._specs[index]
        if spec.get("startupProbe") is not None:
            started = self._probes.startup(container.id)
            if started is False:
                self._replace(spec, container, "failed startup probe", "startup")
            if not started:
                return
        if not before or index == len(self._specs) - 1:
            self._initialized(index)
        if _changed(spec, container, self._features):
            self._replace(spec, container, "definition changed", "")
        elif spec.get("livenessProbe") is not None and (
            self._probes.liveness(container.id) is False
        ):
            self._replace(spec, container, "failed liveness probe", "liveness")
        elif (change := self._probes.resize(spec, container)) == "restart":
            self.kill.append(KillReason(container, _resized(spec)))
            self.start.append(spec)
        elif change:
            self.update.append((spec, container))

    def _replace(self, spec: Object, container: Container, why: str, failed: FailedProbe) -> None:
        message = f"Init container {spec['name']} {why}"
        self.kill.append(KillReason(container, message, failed))
        self.start.append(spec)


def next_init(pod: Object, state: PodState) -> tuple[Container | None, Object | None, bool]:
    """The init container that failed last, the one to run next, and whether all are done."""
    specs = pod["spec"].get("initContainers")
    if not specs:
        return None, None, True
    for spec in reversed(specs):
        container = state.container(spec["name"])
        if container is not None and _failed(container):
            return container, spec, False
    for index in range(len(specs) - 1, -1, -1):
        container = state.container(specs[index]["name"])
        if container is None:
            continue
        if container.state == "running":
            return None, None, False
        if container.state == "exited":
            if index == len(specs) - 1:
                return None, None, True
            return None, specs[index + 1], False
    return None, specs[0], False


def should_restart(spec: Object, pod: Object, state: PodState, features: PodFeatures) -> bool:
    """Whether to start (or restart) a container that is not running."""
    if is_deleted(pod):
        return False
    container = state.container(spec["name"])
    if container is None:
        return True
    if container.state == "running":
        return False
    if container.state in ("unknown", "created"):
        return True
    return exited_restarts(spec, pod, container.exit_code, features)


def exited_restarts(spec: Object, pod: Object, code: int, features: PodFeatures) -> bool:
    """Whether a container that has exited with this code runs again."""
    policy = pod["spec"].get("restartPolicy", "Always")
    if features.restart_rules:
        return container_should_restart(spec, policy, code, restart_all=features.restart_all)
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _restart_policy(spec: Object, pod: Object, features: PodFeatures) -> str:
    """The policy for a container that did not exit by itself, so that rules do not apply."""
    own = spec.get("restartPolicy") if features.restart_rules else None
    policy: str = own or pod["spec"].get("restartPolicy", "Always")
    return policy


def _restarts(pod: Object) -> bool:
    return bool(pod["spec"].get("restartPolicy", "Always") != "Never")


def _succeeded(spec: Object, state: PodState) -> bool:
    container = state.container(spec["name"])
    return container is not None and container.state != "running" and container.exit_code == 0


def _failed(container: Container) -> bool:
    """Whether an init container must run again. An unknown state counts as failed."""
    return (
        container.state == "exited" and container.exit_code != 0
    ) or container.state == "unknown"
