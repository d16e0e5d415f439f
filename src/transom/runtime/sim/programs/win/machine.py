"""Programs that a Windows machine has and its containers do not, and those that show the machine instead of a container."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable
from typing import Final

from transom.hosts.windows.hns import Adapter
from transom.hosts.windows.services import ServiceError
from transom.runtime.sim.login.machine import WindowsMachine, binary_of
from transom.runtime.sim.programs.launch import Command
from transom.runtime.sim.programs.process import Process
from transom.runtime.sim.programs.win import network, nssm, services, texts

_PROGRAMS: Final[dict[str, Command]] = {"nssm": nssm.run}  # that must be on the disk


def find(machine: WindowsMachine, stem: str, path: str) -> Command | None:
    """By a program's name, and the path where it was found; "" for one of Windows' own."""
    if path and binary_of(path) is not None:
        return _node_program(machine, path)
    if stem in _PROGRAMS:
        return _PROGRAMS[stem] if path else None
    return COMMANDS.get(stem)


def _node_program(machine: WindowsMachine, path: str) -> Command:
    """kubelet.exe and its like in the foreground: Control-C ends them, and they end with the terminal."""

    async def run(process: Process) -> int:
        def write(data: bytes) -> None:
            process.stderr.write(data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))

        try:
            running = await machine.run(path, process.argv[1:], process.env, process.cwd, write, 0)
        except ServiceError:
            process.complain(texts.NOT_FOUND_FILE)
            return 1
        try:
            return await running.wait()
        except BaseException:
            machine.spawn(running.stop())
            raise

    return run


# ---- ipconfig ------------------------------------------------------------------------------------------------------


def ipconfig(process: Process) -> int | Awaitable[int]:
    machine = process.context.machine
    assert machine is not None, "a container has another one"
    options = [word.lower().replace("-", "/") for word in process.argv[1:]]
    if options and options[0] in ("/flushdns", "/registerdns"):
        return network.ipconfig(process)
    everything = "/all" in options

    def say(text: str = "") -> None:
        process.write(text + "\r\n")

    say("\r\nWindows IP Configuration\r\n")
    if everything:
        for name, value in (("Host Name", process.context.hostname), ("Primary Dns Suffix", ""), ("Node Type", "Hybrid"),
                            ("IP Routing Enabled", "Yes"), ("WINS Proxy Enabled", "No")):  # fmt: skip
            network.row(process, name, value)
    for adapter in shown(machine):
        say(f"\r\nEthernet adapter {adapter.name}:\r\n")
        network.row(process, "Connection-specific DNS Suffix", "")
        if everything:
            network.row(process, "Description", description(adapter))
            network.row(process, "Physical Address", adapter.mac)
            network.row(process, "DHCP Enabled", "No")
            network.row(process, "Autoconfiguration Enabled", "Yes")
        mark = "(Preferred) " if everything else ""
        if not adapter.address:
            continue
        mask = ipaddress.ip_interface(adapter.address).netmask
        network.row(process, "Link-local IPv6 Address", network.link_local(adapter.ip) + mark)
        network.row(process, "IPv4 Address", adapter.ip + mark)
        network.row(process, "Subnet Mask", str(mask))
        network.row(process, "Default Gateway", adapter.gateway)
    return 0


def shown(machine: WindowsMachine) -> list[Adapter]:
    """Those with addresses of their own: an adapter that a switch has taken has none."""
    return [a for a in machine.hns.adapters.values() if a.compartment == 1 and not (a.kind == "physical" and a.switch)]


def description(adapter: Adapter) -> str:
    kinds = {"physical": "Microsoft Hyper-V Network Adapter", "endpoint": "Hyper-V Virtual Ethernet Container Adapter"}
    return kinds.get(adapter.kind, "Hyper-V Virtual Ethernet Adapter")


COMMANDS: Final[dict[str, Command]] = {"ipconfig": ipconfig, **services.COMMANDS}
