"""A container as its platform is told of it."""

from __future__ import annotations

from transom.runtime.native.core import Core
from transom.runtime.native.hostmounts import NodeMounts
from transom.runtime.native.platform import ContainerRequest
from transom.runtime.native.records import ContainerRecord


def request_of(core: Core, c: ContainerRecord) -> ContainerRequest:
    linux = c.config.linux
    target = core.containers.get(linux.target_id) if linux is not None and linux.target_id else None
    return ContainerRequest(
        id=c.id, sandbox=c.sandbox.facts(), config=c.config, image=c.image, folder=c.folder, snapshot=c.rootfs,
        host=NodeMounts(core.host.files), target_pid=target.pid if target is not None else 0,
    )  # fmt: skip
