"""netstat and ss: the sockets of the container or the machine."""

from __future__ import annotations

from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.userland.api import OpenSocket
from transom.userland.posix.commands import ip
from transom.userland.process import Command, Process

_PROTOCOLS: Final = ("tcp", "udp")
_LISTEN: Final = "LISTEN"
_SS_STATES: Final = {"ESTABLISHED": "ESTAB", "CLOSE_WAIT": "CLOSE-WAIT", "": "UNCONN"}
_LONG: Final = {
    "--tcp": "t",
    "--udp": "u",
    "--listening": "l",
    "--all": "a",
    "--numeric": "n",
    "--programs": "p",
    "--processes": "p",
    "--route": "r",
    "--no-header": "H",
}


class _Row(NamedTuple):
    socket: OpenSocket
    state: str  # as netstat prints it; empty for UDP
    program: str


def _letters(process: Process) -> set[str]:
    out: set[str] = set()
    for word in process.argv[1:]:
        if word.startswith("--"):
            out.add(_LONG.get(word, ""))
        elif word.startswith("-"):
            out |= set(word[1:])
    return out


def _state(one: OpenSocket) -> str:
    return one.state or (_LISTEN if one.protocol == "tcp" else "")


def _rows(process: Process, letters: set[str]) -> list[_Row]:
    """The sockets that the options select: connections, listeners with -l, all with -a."""
    wanted = [name for name in _PROTOCOLS if name[0] in letters] or list(_PROTOCOLS)
    names = {entry.pid: entry.argv for entry in process.context.processes.list()}
    out: list[_Row] = []
    for one in sorted(process.context.network.sockets()):
        connected = bool(one.peer)
        if one.protocol not in wanted:
            continue
        if "a" not in letters and connected == ("l" in letters):
            continue
        argv = names.get(one.pid, ())
        out.append(_Row(one, _state(one), argv[0].rpartition("/")[2] if argv else ""))
    return out


def _end(address: str, port: int) -> str:
    return f"{address}:{port or '*'}"


def _local(one: OpenSocket) -> str:
    return _end(":::".rstrip(":") or "::" if one.address == "::" else one.address, one.port)


def _remote(one: OpenSocket) -> str:
    if one.peer:
        return _end(one.peer, one.peer_port)
    return ":::*" if ":" in one.address else "0.0.0.0:*"


def netstat(process: Process) -> int:
    letters = _letters(process)
    unknown = letters - set("atulnprWewxoc46")
    if unknown:
        process.complain(f"netstat: invalid option -- '{sorted(unknown)[0]}'")
        return 1
    if "r" in letters:
        return ip.route(process)
    kind = (
        "only servers"
        if "l" in letters
        else "servers and established"
        if "a" in letters
        else "w/o servers"
    )
    process.write(f"Active Internet connections ({kind})\n")
    owner = "PID/Program name" if "p" in letters else ""
    process.write(
        f"Proto Recv-Q Send-Q Local Address           Foreign Address         State       {owner}\n"
    )
    for row in _rows(process, letters):
        one = row.socket
        program = f"{one.pid}/{row.program}" if one.pid and row.program else "-"
        line = (
            f"{one.protocol:<5}      0      0 {_local(one):<23} {_remote(one):<23} {row.state:<11} "
        )
        process.write(line + (program if owner else "") + "\n")
    return 0


def ss(process: Process) -> int:
    letters = _letters(process)
    if "r" in letters:
        letters.discard("r")
    if "H" not in letters:
        head = f"{'Netid':<6}{'State':<11}{'Recv-Q':<7}{'Send-Q':<7}"
        process.write(f"{head}{'Local Address:Port':>24}  {'Peer Address:Port':<24}Process\n")
    for row in _rows(process, letters):
        one = row.socket
        state = _SS_STATES.get(row.state, row.state)
        users = ""
        if "p" in letters and row.program:
            users = f'users:(("{row.program}",pid={one.pid},fd=3))'
        queue = 4096 if row.state == _LISTEN else 0
        line = (
            f"{one.protocol:<6}{state:<11}{0:<7}{queue:<7}{_end(one.address, one.port):>24}  "
            f"{_remote(one):<24}{users}"
        )
        process.write(line.rstrip() + "\n")
    return 0


COMMANDS: dict[str, Command] = {"netstat": netstat, "ss": ss}
