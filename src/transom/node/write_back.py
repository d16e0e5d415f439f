"""Saves simulated machines that have changed, and restores a machine's disk when the cluster starts
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from transom.kit.clock import Clock
from transom.machines.machine import BaseHost
from transom.machines.saving import DamagedState, SavedContents
from transom.node.machine import EmulatedMachine, NodeMachine
from transom.node.machine_disks import MachineDisks, MachineState
from transom.node.spec import NodeSpec
from transom.runtime.api import ContainerRuntime
from transom.runtime.sim.engine import SimRuntime
from transom.userland.csi_storage import CsiStorage

log = logging.getLogger("transom.node")


_CSI: Final = "/csi"  # not a valid machine name


class SavedNode(Protocol):
    spec: NodeSpec
    machine: NodeMachine
    runtime: ContainerRuntime


class WriteBack:
    """Also saves the storage behind simulated CSI drivers, which is outside all machines."""

    def __init__(
        self,
        disks: MachineDisks,
        clock: Clock,
        nodes: Callable[[], Iterable[SavedNode]],
        csi: CsiStorage,
    ) -> None:
        self._disks = disks
        self._clock = clock
        self._nodes = nodes
        self._csi = csi

    def start(self, names: Iterable[str]) -> None:
        """Sets the nodes of the cluster. Call it once, before creating any of them."""
        kept = {*names, _CSI}
        self._disks.forget(lambda known: known not in kept)
        saved = self._disks.load(_CSI)
        if saved is not None:
            try:
                self._csi.restore(saved.document, saved.contents)
            except (DamagedState, KeyError, TypeError, AttributeError) as problem:
                log.error("the volumes of simulated CSI drivers are lost: %s", problem)

    # ---- node creation ----

    def load(self, spec: NodeSpec) -> MachineState | None:
        """None if the node starts with the disk of a fresh installation."""
        saved = self._disks.load(spec.name)
        if saved is None or saved.document["system"] != _system(spec):
            return None
        return saved

    @staticmethod
    def restore_machine(saved: MachineState, machine: EmulatedMachine) -> bool:
        try:
            machine.restore(saved.document["host"], saved.contents)
        except (DamagedState, KeyError, TypeError) as problem:
            log.error(
                "the disk of machine %s cannot be read, it starts with an empty one: %s",
                saved.name,
                problem,
            )
            return False
        return True

    @staticmethod
    def restore_runtime(saved: MachineState, runtime: SimRuntime) -> None:
        try:
            runtime.restore(saved.document["runtime"], saved.contents)
        except (DamagedState, KeyError, TypeError) as problem:
            log.error("the containers of machine %s are lost: %s", saved.name, problem)

    # ---- while the cluster runs ----

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._disks.pause)
            await self.save()

    async def save(self) -> None:
        """Saves every machine that has changed. A machine is captured at one moment, so that its
        files are consistent.
        """
        changed: list[BaseHost] = []
        states: list[MachineState] = []
        try:
            await self._capture(changed, states)
            await self._save_states(changed, states)
        finally:
            for state in states:
                state.contents.discard()

    async def _capture(self, changed: list[BaseHost], states: list[MachineState]) -> None:
        for node in tuple(self._nodes()):
            machine, runtime = node.machine, node.runtime
            if not isinstance(runtime, SimRuntime) or not isinstance(machine, BaseHost):
                continue
            if machine.has_changed():
                changed.append(machine)
                states.append(capture_node(node.spec, machine, runtime))
                await states[-1].contents.list_directories()
                await asyncio.sleep(0)

    async def _save_states(self, changed: list[BaseHost], states: list[MachineState]) -> None:
        if not states:
            return
        if not self._csi.is_empty():  # it changes only when a machine does
            contents = SavedContents()
            states.append(MachineState(_CSI, self._csi.save(contents), contents))
            await contents.list_directories()
        try:
            await self._disks.save_in_thread(states)
        except OSError as problem:
            log.warning("the disks of simulated machines cannot be saved: %s", problem)
            for machine in changed:
                machine.changed = True

    def forget(self, name: str) -> None:
        self._disks.forget(lambda known: known == name)


def capture_node(spec: NodeSpec, machine: BaseHost, runtime: SimRuntime) -> MachineState:
    contents = SavedContents()
    document = {
        "system": _system(spec),
        "host": machine.save(contents),
        "runtime": runtime.save(contents),
    }
    return MachineState(spec.name, document, contents)


def _system(spec: NodeSpec) -> list[object]:
    """A machine with another operating system is a different machine."""
    return [spec.os, spec.build, spec.runtime]
