"""A container request as the platform receives it."""

from __future__ import annotations

from dataclasses import replace

from transom.machines.realhost import RealWindowsHost
from transom.runtime.native.core import NativeCore
from transom.runtime.native.hostmounts import NodeMounts
from transom.runtime.native.platform import ContainerRequest
from transom.runtime.native.records import NativeContainer


def request_of(core: NativeCore, c: NativeContainer) -> ContainerRequest:
    linux = c.config.linux
    target = core.containers.get(linux.target_id) if linux is not None and linux.target_id else None
    sandbox = c.sandbox.facts()
    if sandbox.plan.own_users and not c.own_users:
        sandbox = replace(sandbox, plan=replace(sandbox.plan, own_users=False, first_id=0))
    return ContainerRequest(
        id=c.id,
        sandbox=sandbox,
        config=c.config,
        image=c.image,
        folder=c.folder,
        snapshot=c.rootfs,
        host=NodeMounts(core.host.files),
        accounts=core.host.account_database if isinstance(core.host, RealWindowsHost) else None,
        target_pid=target.pid if target is not None else 0,
    )
