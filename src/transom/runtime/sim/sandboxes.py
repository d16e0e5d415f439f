"""The lifecycle of a sandbox: its pause image, its isolation, its network."""

from __future__ import annotations

from collections.abc import Collection

from transom.machines.windows import host_process
from transom.network.api import NetworkFailure, SandboxNetwork
from transom.runtime.api import RuntimeFailure, SandboxConfig
from transom.runtime.sim import containers
from transom.runtime.sim.annotations import annotations_of_container, simulated_failure
from transom.runtime.sim.catalogue import CatalogueImage
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.records import SimSandbox, WindowsIsolation
from transom.windows.builds import BUILDS

HYPERV_ANNOTATION = "experimental.windows.kubernetes.io/isolation-type"
_PROCESS, _HYPERVISOR = "runhcs-wcow-process", "runhcs-wcow-hypervisor"
_HYPERVISOR_SINCE = (1, 7)


def default_handlers(windows: bool, build: int, version: tuple[int, ...]) -> tuple[str, ...]:
    """The runtime handlers of containerd's default configuration. Those for Hyper-V isolation came
    with containerd 1.7, one for each older build.
    """
    if not windows:
        return ("runc",)
    if version < _HYPERVISOR_SINCE:
        return (_PROCESS,)
    return (
        _PROCESS,
        _HYPERVISOR,
        *(f"{_HYPERVISOR}-{number}" for number in BUILDS if number <= build),
    )


class SandboxOptions:
    """`hyperv_gate`: the kubelet's feature gate HyperVContainer, which dockershim uses."""

    __slots__ = ("handlers", "hyperv_gate", "image")

    def __init__(self, image: str, handlers: Collection[str], hyperv_gate: bool) -> None:
        self.image = image
        self.handlers = handlers
        self.hyperv_gate = hyperv_gate


def runs_as_host_process(core: SimCore, config: SandboxConfig) -> bool:
    """Older versions of containerd do not know the field, and docker never did."""
    return (
        config.linux.host_process
        and core.windows
        and not core.docker
        and core.version >= host_process.SINCE
    )


async def run_sim_sandbox(
    core: SimCore, options: SandboxOptions, config: SandboxConfig, handler: str
) -> SimSandbox:
    """Raises RuntimeFailure. What docker could not start stays, not ready; containerd leaves
    nothing behind.
    """
    if not core.docker:
        _check_handler(core, options, handler)
    image = await _pause_image(core, options.image)
    if core.docker:
        _check_handler(core, options, handler)
    sandbox = SimSandbox(core.new_id(), config, handler, core.host.time(), image)
    sandbox.isolation = _isolation(core, options, config, handler)
    sandbox.host_process = runs_as_host_process(core, config)
    sandbox.borrows_address = core.docker and sandbox.isolation.hyperv
    _enter(core, sandbox)
    try:
        await _start(core, sandbox)
    except RuntimeFailure:
        if not core.docker:
            leave_network(core, sandbox)
        raise
    sandbox.state = "ready"
    sandbox.changed()
    core.emit("sandbox", sandbox, sandbox.id)
    return sandbox


def _check_handler(core: SimCore, options: SandboxOptions, handler: str) -> None:
    if handler and handler not in (("docker",) if core.docker else options.handlers):
        raise core.texts.no_handler(handler)


async def _pause_image(core: SimCore, image: str) -> CatalogueImage:
    spec = core.images.spec(image)
    if spec is None:
        try:
            spec = await core.images.pull(image, None)
        except RuntimeFailure as failure:
            raise core.texts.sandbox_image(image, failure) from failure
    return spec


def _isolation(
    core: SimCore, options: SandboxOptions, config: SandboxConfig, handler: str
) -> WindowsIsolation:
    if not core.windows:
        return WindowsIsolation()
    if core.docker:
        hyperv = options.hyperv_gate and config.annotations.get(HYPERV_ANNOTATION) == "hyperv"
        return WindowsIsolation(hyperv, core.build, exact=not hyperv)
    suffix = handler.removeprefix(f"{_HYPERVISOR}-")
    if suffix.isdigit():
        return WindowsIsolation(True, int(suffix))
    hyperv = handler.startswith(_HYPERVISOR)
    return WindowsIsolation(hyperv, core.build, exact=not hyperv)


def _enter(core: SimCore, sandbox: SimSandbox) -> None:
    core.sandboxes[sandbox.id] = sandbox
    core.by_uid.setdefault(sandbox.config.uid, []).append(sandbox)


def leave_network(core: SimCore, sandbox: SimSandbox) -> None:
    """Removes it from all records."""
    core.sandboxes.pop(sandbox.id, None)
    siblings = core.by_uid.get(sandbox.config.uid, [])
    if sandbox in siblings:
        siblings.remove(sandbox)
    if not siblings:
        core.by_uid.pop(sandbox.config.uid, None)


async def _start(core: SimCore, sandbox: SimSandbox) -> None:
    texts, config = core.texts, sandbox.config
    simulated = simulated_failure(annotations_of_container(config.annotations, ""), "fail-sandbox")
    if simulated is not None and simulated.applies(config.attempt):
        raise texts.sandbox_start(
            sandbox.id, config.name, simulated.text or "simulated failure of the sandbox"
        )
    if sandbox.host_process:
        sandbox.namespace = core.node_namespace
        return
    if not sandbox.isolation.hyperv and not containers.runs_here(core, sandbox, sandbox.image):
        raise texts.sandbox_start(
            sandbox.id, config.name, texts.other_build(sandbox.id, config.hostname)
        )
    if config.linux.host_network and not core.windows:
        sandbox.namespace = core.node_namespace
        return
    if config.linux.host_network and core.docker:
        raise texts.sandbox_start(sandbox.id, config.name, "network host not found")
    requested = SandboxNetwork(
        sandbox.id,
        config.namespace,
        config.name,
        config.uid,
        config.dns,
        config.ports,
        config.annotations,
    )
    try:
        addresses = await core.network.add(requested)
    except NetworkFailure as failure:
        raise texts.sandbox_network(
            sandbox.id, config.namespace, config.name, str(failure)
        ) from failure
    sandbox.networked = True
    sandbox.addresses = tuple(addresses)
    sandbox.namespace = core.namespace(sandbox.addresses)


async def stop_sim_sandbox(core: SimCore, sandbox: SimSandbox) -> None:
    for container in tuple(sandbox.containers):
        containers.kill_sim_container(core, container)
    was_ready = sandbox.state == "ready"
    sandbox.state = "notready"
    sandbox.changed()
    if sandbox.namespace is not None and sandbox.namespace is not core.node_namespace:
        sandbox.namespace.close()
    if sandbox.networked:
        try:
            await core.network.remove(sandbox.id)
        except NetworkFailure as failure:
            config = sandbox.config
            raise core.texts.sandbox_teardown(
                sandbox.id, config.namespace, config.name, str(failure)
            ) from failure
        sandbox.networked = False
        sandbox.addresses = ()
        sandbox.changed()
    if was_ready:
        core.emit("sandbox", sandbox, sandbox.id)


async def remove_sim_sandbox(core: SimCore, sandbox: SimSandbox) -> None:
    await stop_sim_sandbox(core, sandbox)
    for container in tuple(sandbox.containers):
        containers.remove_sim_container(core, container)
    leave_network(core, sandbox)
    core.emit("removed", sandbox, sandbox.id)


def power_off_sandbox(core: SimCore, sandbox: SimSandbox) -> None:
    """The machine lost power. Its addresses stay allocated until it is stopped."""
    for container in sandbox.containers:
        containers.power_off_container(core, container)
    if sandbox.namespace is not None:
        sandbox.namespace.close()
    sandbox.state = "notready"
    sandbox.changed()
