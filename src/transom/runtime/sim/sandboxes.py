"""The life of a sandbox: its pause image, its isolation, its network."""

from __future__ import annotations

from collections.abc import Collection

from transom.network.api import NetworkFailure, SandboxNetwork
from transom.runtime.api import RuntimeFailure, SandboxConfig
from transom.runtime.sim import containers
from transom.runtime.sim.catalogue import Spec
from transom.runtime.sim.core import Core
from transom.runtime.sim.records import Isolation, SandboxRecord
from transom.runtime.sim.wishes import failing, of_container
from transom.windows.builds import BUILDS

HYPERV_ANNOTATION = "experimental.windows.kubernetes.io/isolation-type"
_PROCESS, _HYPERVISOR = "runhcs-wcow-process", "runhcs-wcow-hypervisor"


def default_handlers(windows: bool, build: int) -> tuple[str, ...]:
    """Of containerd, as its usual configuration on each system has them; on Windows also one for each older build."""
    if not windows:
        return ("runc",)
    return (_PROCESS, _HYPERVISOR, *(f"{_HYPERVISOR}-{number}" for number in BUILDS if number <= build))


class SandboxOptions:
    """`hyperv_gate`: the kubelet's feature gate HyperVContainer, which docker's shim obeys."""

    __slots__ = ("handlers", "hyperv_gate", "image")

    def __init__(self, image: str, handlers: Collection[str], hyperv_gate: bool) -> None:
        self.image = image
        self.handlers = handlers
        self.hyperv_gate = hyperv_gate


async def run(core: Core, options: SandboxOptions, config: SandboxConfig, handler: str) -> SandboxRecord:
    """Raises RuntimeFailure. What docker could not start stays, not ready; containerd leaves nothing."""
    if not core.docker:
        _check_handler(core, options, handler)
    image = await _pause_image(core, options.image)
    if core.docker:
        _check_handler(core, options, handler)
    sandbox = SandboxRecord(core.new_id(), config, handler, core.host.time(), image)
    sandbox.isolation = _isolation(core, options, config, handler)
    sandbox.borrows_address = core.docker and sandbox.isolation.hyperv
    _enter(core, sandbox)
    try:
        await _start(core, sandbox)
    except RuntimeFailure:
        if not core.docker:
            leave(core, sandbox)
        raise
    sandbox.state = "ready"
    sandbox.changed()
    core.emit("sandbox", sandbox, sandbox.id)
    return sandbox


def _check_handler(core: Core, options: SandboxOptions, handler: str) -> None:
    if handler and handler not in (("docker",) if core.docker else options.handlers):
        raise core.texts.no_handler(handler)


async def _pause_image(core: Core, image: str) -> Spec:
    spec = core.images.spec(image)
    if spec is None:
        try:
            spec = await core.images.pull(image, None)
        except RuntimeFailure as failure:
            raise core.texts.sandbox_image(image, failure) from failure
    return spec


def _isolation(core: Core, options: SandboxOptions, config: SandboxConfig, handler: str) -> Isolation:
    if not core.windows:
        return Isolation()
    if core.docker:
        hyperv = options.hyperv_gate and config.annotations.get(HYPERV_ANNOTATION) == "hyperv"
        return Isolation(hyperv, core.build, exact=not hyperv)
    suffix = handler.removeprefix(f"{_HYPERVISOR}-")
    if suffix.isdigit():
        return Isolation(True, int(suffix))
    hyperv = handler.startswith(_HYPERVISOR)
    return Isolation(hyperv, core.build, exact=not hyperv)


def _enter(core: Core, sandbox: SandboxRecord) -> None:
    core.sandboxes[sandbox.id] = sandbox
    core.by_uid.setdefault(sandbox.config.uid, []).append(sandbox)


def leave(core: Core, sandbox: SandboxRecord) -> None:
    """Nobody knows it any more."""
    core.sandboxes.pop(sandbox.id, None)
    siblings = core.by_uid.get(sandbox.config.uid, [])
    if sandbox in siblings:
        siblings.remove(sandbox)
    if not siblings:
        core.by_uid.pop(sandbox.config.uid, None)


async def _start(core: Core, sandbox: SandboxRecord) -> None:
    texts, config = core.texts, sandbox.config
    wish = failing(of_container(config.annotations, ""), "fail-sandbox")
    if wish is not None and wish.applies(config.attempt):
        raise texts.sandbox_start(sandbox.id, config.name, wish.text or "simulated failure of the sandbox")
    if not sandbox.isolation.hyperv and not containers.runs_here(core, sandbox, sandbox.image):
        raise texts.sandbox_start(sandbox.id, config.name, texts.other_build(sandbox.id, config.hostname))
    if config.linux.host_network and not core.windows:
        sandbox.namespace = core.node_namespace
        return
    if config.linux.host_network and core.docker:
        raise texts.sandbox_start(sandbox.id, config.name, "network host not found")
    asked = SandboxNetwork(
        sandbox.id, config.namespace, config.name, config.uid, config.dns, config.ports, config.annotations
    )
    try:
        addresses = await core.network.add(asked)
    except NetworkFailure as failure:
        raise texts.sandbox_network(sandbox.id, config.namespace, config.name, str(failure)) from failure
    sandbox.networked = True
    sandbox.addresses = tuple(addresses)
    sandbox.namespace = core.namespace(sandbox.addresses)


async def stop(core: Core, sandbox: SandboxRecord) -> None:
    for container in tuple(sandbox.containers):
        containers.kill(core, container)
    was_ready = sandbox.state == "ready"
    sandbox.state = "notready"
    sandbox.changed()
    if sandbox.namespace is not None and sandbox.namespace is not core.node_namespace:
        sandbox.namespace.close()
    if sandbox.networked:
        try:
            await core.network.remove(sandbox.id)
        except NetworkFailure as failure:
            pod = f"{sandbox.config.name}_{sandbox.config.namespace}"
            text = f'networkPlugin cni failed to teardown pod "{pod}" network: {failure}'
            raise RuntimeFailure("Unknown", text) from failure
        sandbox.networked = False
        sandbox.addresses = ()
        sandbox.changed()
    if was_ready:
        core.emit("sandbox", sandbox, sandbox.id)


async def remove(core: Core, sandbox: SandboxRecord) -> None:
    await stop(core, sandbox)
    for container in tuple(sandbox.containers):
        containers.remove(core, container)
    leave(core, sandbox)
    core.emit("removed", sandbox, sandbox.id)


def went_down(core: Core, sandbox: SandboxRecord) -> None:
    """The machine was switched off under it. Its addresses stay taken until somebody stops it."""
    for container in sandbox.containers:
        containers.went_down(core, container)
    if sandbox.namespace is not None:
        sandbox.namespace.close()
    sandbox.state = "notready"
    sandbox.changed()
