"""The `RuntimePlatform` for Linux containers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal

from transom.kit.programs import run_program
from transom.runtime import saved
from transom.runtime.api import (
    ContainerConfig,
    LinuxContainer,
    RuntimeFailure,
    RuntimeVersion,
    SandboxConfig,
)
from transom.runtime.native import runc
from transom.runtime.native.core import IDS
from transom.runtime.native.platform import (
    CannotStart,
    CgroupLimits,
    CgroupUsage,
    ContainerRequest,
    RunningContainer,
    SandboxPlan,
    Spec,
    cgroup_limits,
)
from transom.runtime.oci import capabilities, seccomp, users
from transom.runtime.oci import spec as specs
from transom.runtime.signals import signal_number

_TASK: Final = "failed to create containerd task: "
_PAUSE_USER: Final = 65535


class LinuxPlatform:
    os: Literal["linux", "windows"] = "linux"
    separator = "/"
    raw_terminal = False

    def __init__(self, *, user_namespaces: bool | None = None, version: str = "") -> None:
        """`version`: the containerd that the node reports. `user_namespaces`: whether root in a
        container is an unprivileged user of this machine; None: where that works. Pods that need
        the node's own resources never have one.
        """
        self.version = RuntimeVersion("containerd", f"{version or '1.4.3'}-oci")
        self._rootless = os.geteuid() != 0
        self.user_namespaces = user_namespaces is not False and not self._rootless
        self.demands_user_namespaces = user_namespaces is True

    def unusable(self) -> str:
        return runc.find_runc()[1]

    def missing(self) -> list[str]:
        found = []
        if not _kernel_has_seccomp():
            found.append("the kernel has no seccomp: containers may make every system call")
        elif not _has_seccomp():
            found.append("runc was built without seccomp: containers may make every system call")
        if not _apparmor():
            found.append("AppArmor is not enabled: profiles of containers are not enforced")
        if self._rootless:
            found += [
                "not root: containers run as one user, whatever they ask for",
                "not root: containers have no network but their own loopback",
                (
                    "not root: no devices, no volumes in memory, no forwarded ports, no mounts "
                    "that are passed on"
                ),
            ]
        else:
            absent = [
                name for name in capabilities.NAMES if name not in capabilities.held_capabilities()
            ]
            if absent:
                found.append(
                    f"capabilities that this process does not have and cannot grant: {', '.join(absent)}"
                )
        return found

    # ---- sandboxes and containers ----

    def sandbox(self, config: SandboxConfig, node: str) -> SandboxPlan:
        linux = config.linux
        user = _PAUSE_USER if linux.run_as_user is None else linux.run_as_user
        group = (
            linux.run_as_group
            if linux.run_as_group is not None
            else _PAUSE_USER
            if linux.run_as_user is None
            else 0
        )
        shares = (
            linux.host_network
            or linux.host_pid
            or linux.host_ipc
            or linux.host_users
            or linux.privileged
        )
        # Some sysctls are hidden from other user namespaces, or contain ids that only the machine's
        # has (ping_group_range).
        shares = shares or bool(linux.sysctls) or max(user, group) >= IDS
        return SandboxPlan(
            own_users=linux.user_namespace is not None or (self.user_namespaces and not shares),
            hostname=config.hostname or node,
            network=not linux.host_network,
            ipc=not linux.host_ipc,
            pid=not linux.host_pid,
            sysctls=dict(linux.sysctls),
            user=0 if self._rootless else user,
            group=0 if self._rootless else group,
        )

    async def layers(self, request: ContainerRequest) -> Sequence[Path]:
        return request.image.layers

    def limits(self, config: ContainerConfig, cpus: int) -> CgroupLimits:
        return cgroup_limits((config.linux or LinuxContainer()).resources)

    async def create(self, request: ContainerRequest) -> Spec:
        if not specs.oci_command_line(request.config, specs.oci_image_config(request)):
            text = "failed to generate spec: no command specified"
            raise RuntimeFailure(
                "Unknown", f'failed to generate container "{request.id}" spec: {text}'
            )
        try:
            return await asyncio.to_thread(
                specs.oci_specification,
                request,
                with_seccomp=_has_seccomp(),
                rootless=self._rootless,
            )
        except users.OciUserNotFound as problem:
            raise RuntimeFailure(
                "Unknown", f"failed to create containerd container: {problem}"
            ) from problem
        except (specs.BadContainer, seccomp.BadProfile) as problem:
            raise RuntimeFailure(
                "Unknown", f'failed to generate container "{request.id}" spec: {problem}'
            ) from problem
        except capabilities.UnknownCapability as problem:
            raise self.failure(
                request, f"unable to start container process: {problem}"
            ) from problem

    async def started(self, container: RunningContainer) -> None:
        return None

    def failure(self, request: ContainerRequest, text: str) -> CannotStart:
        error_text = f"{_TASK}OCI runtime create failed: {runc.reword_runc_error(text)}: unknown"
        return CannotStart(RuntimeFailure("Unknown", error_text))

    # ---- commands ----

    def exec_process(
        self, container: RunningContainer, command: Sequence[str], *, tty: bool, exec_id: str
    ) -> Spec:
        spec = saved.load_record(container.request.folder / "spec.json")
        if spec is None:
            raise RuntimeFailure(
                "Unknown",
                "failed to exec in container: failed to load spec: the container's folder is gone",
            )
        return specs.oci_exec_process(spec, command, tty=tty)

    def exec_failure(
        self, container: RunningContainer, exec_id: str, command: Sequence[str], text: str
    ) -> RuntimeFailure:
        error_text = (
            f"OCI runtime exec failed: exec failed: {runc.reword_runc_error(text)}: unknown"
        )
        return RuntimeFailure(
            "Unknown",
            f'failed to exec in container: failed to start exec "{exec_id}": {error_text}',
        )

    # ---- the end ----

    def stop_grace_seconds(self, container: RunningContainer, grace: float) -> float:
        return grace

    async def stop(self, container: RunningContainer) -> None:
        container.signal(
            signal_number(
                container.request.config.stop_signal
                or str(specs.oci_image_config(container.request).get("StopSignal") or "")
            )
        )

    def exit_code(self, request: ContainerRequest, status: int, exec_id: str = "") -> int:
        return status

    def finished(self, request: ContainerRequest) -> None:
        return None

    # ---- statistics ----

    def usage(self, request: ContainerRequest, counted: CgroupUsage) -> CgroupUsage:
        return counted

    def layer_usage(self, request: ContainerRequest, counted: tuple[int, int]) -> tuple[int, int]:
        return counted


@cache
def _has_seccomp() -> bool:
    program, _ = runc.find_runc()
    if not program or not _kernel_has_seccomp():
        return False
    return b"seccomp" in run_program([program, "--version"]).stdout.lower()


def _kernel_has_seccomp() -> bool:
    return os.path.exists("/proc/sys/kernel/seccomp")


def _apparmor() -> bool:
    try:
        return Path("/sys/module/apparmor/parameters/enabled").read_text().strip() == "Y"
    except OSError:
        return False
