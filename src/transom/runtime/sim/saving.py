"""The persistent state of docker and containerd on a machine's disk: images, sandboxes, containers
and their writable layers.

A restart of the process looks like a reboot: sandboxes are not ready, and running containers have
ended with exit code 255.
"""

from __future__ import annotations

from typing import Final

from transom.machines.container_files import LayeredFiles
from transom.machines.saving import DamagedState, Document, SavedContents
from transom.runtime import saved as records
from transom.runtime.api import ContainerConfig, SandboxConfig
from transom.runtime.sim import files
from transom.runtime.sim.catalogue import CatalogueImage, CataloguePlatform
from transom.runtime.sim.containers import log_path
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.logs import ContainerLog
from transom.runtime.sim.records import SimContainer, SimSandbox, WindowsIsolation
from transom.runtime.sim.sandboxes import runs_as_host_process

REBOOTED: Final = 255
_CONTAINER: Final = (
    "argv",
    "credentials",
    "exit_code",
    "finished",
    "image_name",
    "image_ref",
    "message",
    "reason",
    "started",
)
_SANDBOX: Final = ("addresses", "borrows_address", "created", "handler", "isolation", "networked")


def save_sim_runtime(core: SimCore, contents: SavedContents) -> Document:
    return {
        "time": core.host.time(),
        "images": core.images.save(),
        "sandboxes": [_sandbox(sandbox) for sandbox in core.sandboxes.values()],
        "containers": [
            _container(core, container, contents) for container in core.containers.values()
        ],
    }


def _sandbox(sandbox: SimSandbox) -> Document:
    return {
        "id": sandbox.id,
        "config": sandbox.config,
        "image": _image(sandbox.image),
        **{name: getattr(sandbox, name) for name in _SANDBOX},
    }


def _container(core: SimCore, c: SimContainer, contents: SavedContents) -> Document:
    layer = c.files.save(files.base_tree(core.host, c, docker=core.docker), contents)
    return {
        "id": c.id,
        "sandbox": c.sandbox.id,
        "config": c.config,
        "image": _image(c.spec),
        "created": c.created,
        "state": c.state,
        "layer": layer,
        **{name: getattr(c, name) for name in _CONTAINER},
    }


def _image(spec: CatalogueImage) -> Document:
    return {"id": spec.id, "name": f"{spec.repository}@{spec.digest}", "platform": spec.platform}


def restore_sim_runtime(core: SimCore, saved: Document, contents: SavedContents) -> None:
    """Raises DamagedState."""
    try:
        core.images.restore(saved["images"])
        for row in saved["sandboxes"]:
            _restore_sandbox(core, row)
        for row in saved["containers"]:
            _restore_container(core, row, saved["time"], contents)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise DamagedState(
            f"the containers of {core.host.name} cannot be read: {problem}"
        ) from problem


def _spec(core: SimCore, row: Document) -> CatalogueImage | None:
    return core.images.known_spec(row["id"], row["name"], CataloguePlatform(*row["platform"]))


def _restore_sandbox(core: SimCore, row: Document) -> None:
    image = _spec(core, row["image"])
    if image is None:
        return
    config = records.restore_record(SandboxConfig, row["config"])
    sandbox = SimSandbox(row["id"], config, row["handler"], row["created"], image)
    sandbox.addresses, sandbox.networked = tuple(row["addresses"]), row["networked"]
    sandbox.borrows_address, sandbox.isolation = (
        row["borrows_address"],
        WindowsIsolation(*row["isolation"]),
    )
    sandbox.host_process = runs_as_host_process(core, config)
    core.sandboxes[sandbox.id] = sandbox
    core.by_uid.setdefault(config.uid, []).append(sandbox)


def _restore_container(core: SimCore, row: Document, ended: float, contents: SavedContents) -> None:
    spec, sandbox = _spec(core, row["image"]), core.sandboxes.get(row["sandbox"])
    if spec is None or sandbox is None:
        return
    c = SimContainer(
        row["id"],
        sandbox,
        records.restore_record(ContainerConfig, row["config"]),
        spec,
        row["created"],
    )
    for name in _CONTAINER:
        setattr(c, name, row[name])
    c.argv, c.state = tuple(row["argv"]), row["state"]
    if c.state == "running":
        c.state, c.exit_code, c.finished, c.reason = "exited", REBOOTED, ended, c.reason or "Error"
    c.files = _layer(core, c, row["layer"], contents)
    c.prepared = True
    c.log = ContainerLog(core.host.files, log_path(core, c), core.host.clock)
    core.containers[c.id] = c
    sandbox.containers.append(c)


def _layer(
    core: SimCore, c: SimContainer, saved: Document, contents: SavedContents
) -> LayeredFiles:
    base = files.base_tree(core.host, c, docker=core.docker)
    tree = core.host.container_files(base)
    tree.restore(saved, base, contents)
    return tree
