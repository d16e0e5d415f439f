"""Programs that a Windows machine has and its containers do not, and those that show the machine
instead of a container.
"""

from __future__ import annotations

import ntpath
from typing import Final

from transom.machines.windows.services import ServiceError
from transom.runtime.sim.login import container_commands as containers
from transom.runtime.sim.login.machine import WindowsMachine, binary_of
from transom.userland.process import Command, Process
from transom.userland.windows import hnsdiag, nssm, ovn, texts

_PLUGIN_DIRECTORIES: Final = (r"c:\k\cni", r"c:\program files\containerd\cni\bin")


def iscsi_helper(process: Process) -> int:
    """`iscsiHelper.exe mount PORTAL TARGET LUN FILESYSTEM` prints the path of the volume."""
    node = process.context.node
    storage = node.storage if node is not None else None
    words = process.argv[1:]
    if len(words) != 5 or words[0].lower() != "mount" or not words[3].isdigit() or storage is None:
        process.write("usage: iscsiHelper.exe mount PORTAL TARGET LUN FILESYSTEM\r\n")
        return 87
    try:
        process.write(storage.connect_lun(words[1], words[2], int(words[3]), words[4]) + "\r\n")
    except OSError as problem:
        process.write(f"{problem.strerror}\r\n")
        return 1
    return 0


_PROGRAMS: Final[dict[str, Command]] = {
    "nssm": nssm.run_nssm,
    "iscsihelper": iscsi_helper,
}  # which must exist on the disk


def find_node_command(machine: WindowsMachine, stem: str, path: str) -> Command | None:
    """By a program's name, and the path where it was found; "" for one of Windows' own."""
    if path and binary_of(path) is not None:
        return _node_program(machine, path)
    if path and ntpath.dirname(path).lower() in _PLUGIN_DIRECTORIES:
        return _plugin(machine, stem)
    if stem in _PROGRAMS:
        return _PROGRAMS[stem] if path else None
    if stem.startswith(("ovs-", "ovn-")):
        return ovn.commands_of(machine.hns).get(stem)
    return containers.runtime_commands(machine).get(stem) or _MACHINE_COMMANDS.get(stem)


def _plugin(machine: WindowsMachine, name: str) -> Command:
    """host-local.exe and other CNI plugins: a request on the standard input, the rest in
    variables.
    """

    async def run(process: Process) -> int:
        request = await process.read_all()
        code, answer = machine.binaries.run_plugin(name, process.env, request)
        process.stdout.write(answer)
        return code

    return run


def _with_windows_line_ends(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _node_program(machine: WindowsMachine, path: str) -> Command:
    """kubelet.exe and the like in the foreground: Control-C ends them, and they end with the
    terminal.
    """

    async def run(process: Process) -> int:
        def write(data: bytes) -> None:
            process.stderr.write(_with_windows_line_ends(data))

        def answer(data: bytes) -> None:
            process.stdout.write(_with_windows_line_ends(data))

        try:
            running = await machine.run(
                path, process.argv[1:], process.env, process.cwd, write, 0, stdout=answer
            )
        except ServiceError:
            process.complain(texts.NOT_FOUND_FILE)
            return 1
        try:
            return await running.wait()
        except BaseException:
            machine.spawn(running.stop())
            raise

    return run


_MACHINE_COMMANDS: Final[dict[str, Command]] = {
    "hnsdiag": hnsdiag.hnsdiag,
}
