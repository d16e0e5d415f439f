"""The common part of the records of simulated and real containers: how the runtime presents
them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from transom.runtime.api import (
    Container,
    ContainerConfig,
    ContainerState,
    LinuxContainer,
    LinuxContainerUser,
    LinuxResources,
    WindowsContainer,
    WindowsResources,
)


class _Sandbox(Protocol):
    @property
    def id(self) -> str: ...


class ContainerFacts(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def sandbox(self) -> _Sandbox: ...
    @property
    def config(self) -> ContainerConfig: ...
    @property
    def state(self) -> ContainerState: ...
    @property
    def image_name(self) -> str: ...
    @property
    def image_ref(self) -> str: ...
    @property
    def created(self) -> float: ...
    @property
    def started(self) -> float: ...
    @property
    def finished(self) -> float: ...
    @property
    def exit_code(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def stop_signal(self) -> str: ...
    @property
    def user(self) -> LinuxContainerUser | None: ...


def resized_config(
    config: ContainerConfig, resources: LinuxResources | WindowsResources
) -> ContainerConfig:
    """Of a Windows container only the CPUs change, of a Linux container everything except how the
    kernel chooses it when memory is exhausted.
    """
    if isinstance(resources, WindowsResources):
        windows = config.windows or WindowsContainer()
        changed = replace(windows.resources, cpuset=resources.cpuset)
        return replace(config, windows=replace(windows, resources=changed))
    linux = config.linux or LinuxContainer()
    same = linux.resources.oom_score_adj
    return replace(config, linux=replace(linux, resources=replace(resources, oom_score_adj=same)))


def container_view(record: ContainerFacts, log_path: str) -> Container:
    config = record.config
    return Container(
        id=record.id,
        sandbox_id=record.sandbox.id,
        name=config.name,
        attempt=config.attempt,
        state=record.state,
        image=record.image_name,
        image_ref=record.image_ref,
        labels=config.labels,
        annotations=config.annotations,
        created_at=record.created,
        started_at=record.started,
        finished_at=record.finished,
        exit_code=cri_exit_code(record.exit_code),
        reason=record.reason,
        message=record.message,
        log_path=log_path,
        mounts=config.mounts,
        stop_signal=record.stop_signal,
        user=record.user,
    )


def cri_exit_code(code: int) -> int:
    """CRI's exit codes are signed: 0xC000013A is -1073741510."""
    return (code + 0x80000000) % 0x100000000 - 0x80000000
