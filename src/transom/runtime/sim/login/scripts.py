r"""The content of `C:\k` and `C:\flannel` on a Windows node: the node's programs, and the scripts
that start them.

The scripts are this simulation's own, with the parameters and defaults from the documentation. The
simulated PowerShell runs them; users who log in can read and change them.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files as resources
from typing import Final

from transom.machines.api import Files

_OTHER_PROGRAM: Final = "kube-proxy"
HOME: Final = r"C:\k"
NSSM: Final = rf"{HOME}\nssm.exe"
_PROGRAMS: Final = (
    rf"{HOME}\kubelet.exe",
    rf"{HOME}\kube-proxy.exe",
    NSSM,
    r"C:\flannel\flanneld.exe",
)
SCRIPTS: Final = (
    "start.ps1",
    "stop.ps1",
    "start-kubelet.ps1",
    "start-kubeproxy.ps1",
    "register-svc.ps1",
    "source-vip.ps1",
    "hns.psm1",
)


def install_node_scripts(files: Files, refused: frozenset[str] = frozenset()) -> None:
    """Keeps existing files. The scripts do not use the flags that the node's kubelet refuses."""
    files.mkdir(HOME)
    files.mkdir(r"C:\flannel")
    for path in _PROGRAMS:
        if not files.exists(path):
            files.write(path, b"MZ", 0o755)
    for name in SCRIPTS:
        path = rf"{HOME}\{name}"
        if not files.exists(path):
            files.write(path, _script(name, refused))


@cache
def _script(name: str, refused: frozenset[str]) -> bytes:
    text = resources("transom.runtime.sim.login").joinpath("ps1", name).read_text()
    lines = [_without_flags(line, refused) for line in text.split("\n")]
    return "\r\n".join(lines).encode()


def _without_flags(line: str, refused: frozenset[str]) -> str:
    """Removes flags from a line that starts a kubelet, also those in a list of strings."""
    if not refused or _OTHER_PROGRAM in line:
        return line
    names = "|".join(sorted(refused))
    line = re.sub(rf'"--({names})=[^"]*"(, )?', "", line)
    return re.sub(rf' --({names})=("[^"]*"|[^\s"]+)', "", line)
