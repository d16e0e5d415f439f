"""`VolumeAccess` of programs in simulated containers, as CSI drivers use it."""

from __future__ import annotations

from collections.abc import Callable

from transom.kit.rpc import Answer
from transom.machines.container_files import LayeredFiles
from transom.machines.filesystems import FileSystem
from transom.machines.inodes import BlockContent
from transom.runtime.sim import mounting
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.records import SimContainer
from transom.userland.csi_storage import CsiStorage


class ContainerVolumes:
    __slots__ = ("_closers", "_container", "_core", "_files")

    def __init__(
        self,
        core: SimCore,
        container: SimContainer,
        closers: list[Callable[[], None]],
        files: LayeredFiles,
    ) -> None:
        self._core = core
        self._container = container
        self._closers = closers
        self._files = files

    @property
    def csi_storage(self) -> CsiStorage:
        return self._core.csi_storage

    def serve_socket(self, path: str, answer: Answer) -> None:
        self._files.remove(path, recursive=True)
        self._closers.append(self._files.listen(path, answer))

    def dial_socket(self, path: str) -> Answer:
        return self._files.answerer(path)

    def new_file_system(self, size: int) -> FileSystem:
        return self._core.host.files.new_file_system(size)

    def mount(self, system: FileSystem, path: str, read_only: bool = False) -> None:
        mounting.mount_in_container(self._core.host, self._container, system, path, read_only)

    def make_device(self, blocks: BlockContent, path: str) -> None:
        mounting.make_device(self._core.host, self._container, blocks, path)

    def unmount(self, path: str) -> None:
        mounting.unmount_in_container(self._core.host, self._container, path)
