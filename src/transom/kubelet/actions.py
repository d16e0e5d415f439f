"""Computes the actions that bring a pod to its desired state: a pure function of the pod, the
runtime's state and probe results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from transom.kubelet.labels import HASH, container_hash
from transom.kubelet.podstate import PodState, is_deleted, is_host_network
from transom.machinery.objects import Object
from transom.runtime.api import Container

Probed = Callable[[str], bool | None]
"""The probe result by container id; None if there is no result."""


class KillReason(NamedTuple):
    container: Container
    message: str


class PodActions(NamedTuple):
    """`kill_pod` stops all containers and the sandbox; `create_sandbox` creates a new sandbox with
    this attempt to replace `sandbox_id`. `start` lists the containers to start, `init` is the next
    init container to run.
    """

    kill_pod: bool = False
    create_sandbox: bool = False
    sandbox_id: str = ""
    attempt: int = 0
    init: Object | None = None
    start: tuple[Object, ...] = ()
    ephemeral: tuple[Object, ...] = ()
    kill: tuple[KillReason, ...] = ()

    def __bool__(self) -> bool:
        """Whether any action is needed."""
        return bool(
            self.kill_pod
            or self.create_sandbox
            or self.init
            or self.start
            or self.ephemeral
            or self.kill
        )


def compute_pod_actions(
    pod: Object, state: PodState, liveness: Probed, startup: Probed
) -> PodActions:
    changed, attempt, sandbox_id = _sandbox_changed(pod, state)
    if changed:
        return _new_sandbox(pod, state, attempt, sandbox_id)

    # Ephemeral containers start once, whatever the init containers do.
    ephemeral = tuple(
        c
        for c in pod["spec"].get("ephemeralContainers") or ()
        if state.container(c["name"]) is None
    )
    base = PodActions(sandbox_id=sandbox_id, attempt=attempt, ephemeral=ephemeral)

    last, following, done = next_init(pod, state)
    if not done:
        return base if following is None else _initialise(pod, base, last, following)
    return _containers(pod, state, base, liveness, startup)


def _sandbox_changed(pod: Object, state: PodState) -> tuple[bool, int, str]:
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


def _new_sandbox(pod: Object, state: PodState, attempt: int, sandbox_id: str) -> PodActions:
    actions = PodActions(kill_pod=True, sandbox_id=sandbox_id, attempt=attempt)
    if not _restarts(pod) and attempt and state.containers:
        return actions  # it has run once and is never restarted
    start = tuple(
        c
        for c in pod["spec"]["containers"]
        if not (pod["spec"].get("restartPolicy") == "OnFailure" and _succeeded(c, state))
    )
    if not start and next_init(pod, state)[2]:
        return actions
    actions = actions._replace(create_sandbox=True)
    if pod["spec"].get("initContainers"):
        return actions._replace(init=pod["spec"]["initContainers"][0])
    return actions._replace(start=start)


def _initialise(
    pod: Object, base: PodActions, last: Container | None, following: Object
) -> PodActions:
    if last is not None and _failed(last) and not _restarts(pod):
        return base._replace(kill_pod=True)
    if last is not None and last.state == "unknown":
        # It may still be running; never run two instances of a container.
        return base._replace(
            init=following,
            kill=(
                KillReason(
                    last, 'Init container is in "unknown" state, try killing it before restart'
                ),
            ),
        )
    return base._replace(init=following)


def _containers(
    pod: Object, state: PodState, base: PodActions, liveness: Probed, startup: Probed
) -> PodActions:
    start: list[Object] = []
    kill: list[KillReason] = []
    keep = 0
    for spec in pod["spec"]["containers"]:
        container = state.container(spec["name"])
        if container is None or container.state != "running":
            if should_restart(spec, pod, state):
                start.append(spec)
                if container is not None and container.state == "unknown":
                    kill.append(
                        KillReason(
                            container,
                            'Container is in "unknown" state, try killing it before restart',
                        )
                    )
            continue
        restart = _restarts(pod)
        if container.annotations.get(HASH) != container_hash(spec):
            message = f"Container {spec['name']} definition changed"
            restart = True
        elif liveness(container.id) is False:
            message = f"Container {spec['name']} failed liveness probe"
        elif startup(container.id) is False:
            message = f"Container {spec['name']} failed startup probe"
        else:
            keep += 1
            continue
        if restart:
            message += ", will be restarted"
            start.append(spec)
        kill.append(KillReason(container, message))
    return base._replace(start=tuple(start), kill=tuple(kill), kill_pod=not keep and not start)


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


def should_restart(spec: Object, pod: Object, state: PodState) -> bool:
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
    policy = pod["spec"].get("restartPolicy", "Always")
    return policy == "Always" or (policy == "OnFailure" and container.exit_code != 0)


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
