"""The machine of a node: emulated, or a directory of this machine for real containers."""

from __future__ import annotations

from typing import Protocol, cast

from transom.kit.clock import Clock
from transom.machinery.quantity import parse_quantity
from transom.machines.api import Hardware, Host
from transom.machines.linux import LinuxHost
from transom.machines.machine import HostClock
from transom.machines.windows.hns import HostNetworkService
from transom.machines.windows.host import WindowsHost
from transom.machines.windows.registry import WindowsRegistry
from transom.node.spec import NodeSpec, windows_build


class NodeMachine(Host, Protocol):
    @property
    def clock(self) -> HostClock: ...


class WindowsNodeMachine(NodeMachine, Protocol):
    @property
    def hns(self) -> HostNetworkService: ...
    @property
    def registry(self) -> WindowsRegistry: ...
    @property
    def computer_name(self) -> str: ...


EmulatedMachine = LinuxHost | WindowsHost


def windows_machine(machine: NodeMachine) -> WindowsNodeMachine:
    """The machine of a Windows node, with the Windows-only parts."""
    return cast(WindowsNodeMachine, machine)


def node_hardware(spec: NodeSpec) -> Hardware:
    memory, disk = parse_quantity(spec.memory).value(), parse_quantity(spec.disk).value()
    return Hardware(
        cpus=spec.cpus,
        memory=memory,
        disk=disk,
        swap=parse_quantity(spec.swap).value(),
        threads_per_core=spec.threads_per_core,
        numa_nodes=spec.numa_nodes,
    )


def make_emulated_machine(spec: NodeSpec, clock: Clock, seed: str) -> EmulatedMachine:
    hardware = node_hardware(spec)
    if spec.windows:
        return WindowsHost(spec.name, clock, hardware, build=windows_build(spec), seed=seed)
    return LinuxHost(spec.name, clock, hardware, seed=seed)
