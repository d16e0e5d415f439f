"""Simulated programs that a user starts: deep trees, many children, growing values, recursion."""

from __future__ import annotations

import contextlib
import ssl
import time
from urllib.parse import quote

from tests.hostile.conftest import MIB, Attack, Victim
from tests.hostile.test_streams import POD, spdy, streams

DEEP = "cd /tmp; p=a; for i in 1 2 3 4 5 6 7 8 9; do p=$p/$p; done; mkdir -p $p; "  # 512 levels


def nested(text: str, doublings: int = 13) -> str:
    return f"x='{text}'; for i in $(seq 1 {doublings}); do x=$x$x; done; "


SHELL = [
    DEEP
    + (
        "find a | wc -l; tar cf /t.tar a; cp -r a b; ls -R b | wc -l; du a | wc -l; chmod -R 700 "
        "a; rm -rf a b; echo $?"
    ),
    "seq 1 20000 | xargs -n 1 echo | wc -l",
    nested("(") + 'eval "$x"',
    nested("{ ") + 'eval "$x"',
    nested("$(") + 'eval "echo $x"',
    nested("`") + 'eval "echo $x"',
    nested("(") + "echo $(( ${x}1 ))",
    nested("1?") + "echo $(( ${x}1 ))",
    nested("if true; then ", 11) + 'eval "$x"',
    "f() { f; }; f",
    "f() { echo $(f); }; f",
    "echo '. /tmp/s' > /tmp/s; . /tmp/s",
]
POWERSHELL = [
    "$s='x'; while($true){$s+=$s}",
    "@(1)*1000000000",
    "'a'.PadLeft(1000000000)",
    "function f { f }; f",
    "Invoke-Expression ('('*10000)",
    "Invoke-Expression ('$('*10000)",
    "Invoke-Expression ('@('*10000)",
]
CMD = ["set x=aaaaaaaaaa" + " & call set x=%x%%x%" * 25, "(" * 3000]


def run(victim: Victim, pod: str, *command: str, seconds: float = 3.0) -> None:
    """Until the command ends, or for a while."""
    path = f"{POD}/{pod}/exec?container=main&stdout=1&stderr=1&" + "&".join(
        f"command={quote(word)}" for word in command
    )
    until = time.monotonic() + seconds
    with (
        spdy(victim, path) as sock,
        contextlib.suppress(TimeoutError, ConnectionResetError, ssl.SSLError),
    ):
        sock.sendall(streams("error", "stdout", "stderr"))
        sock.settimeout(seconds)
        while time.monotonic() < until and sock.recv(65536):
            pass


def test_shells(node_victim: Victim, node_attack: Attack) -> None:
    with node_attack(rss=80 * MIB):
        for script in SHELL:
            run(node_victim, "shell", "sh", "-c", script)


def test_windows_shells(node_victim: Victim, node_attack: Attack) -> None:
    with node_attack(rss=80 * MIB):
        for script in POWERSHELL:
            run(node_victim, "windows", "powershell", "-Command", script)
        for script in CMD:
            run(node_victim, "windows", "cmd", "/c", script)
