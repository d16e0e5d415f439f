r"""What is on the disk of a Windows node in `C:\k` and `C:\flannel`: the node's programs, and the scripts that start them.

The scripts are this simulation's own, with the parameters and defaults that the documents name. They are text that the
simulated PowerShell runs; who logs in may read and change them.
"""

from __future__ import annotations

from importlib.resources import files as resources
from typing import Final

from transom.hosts.api import Files
from transom.runtime.sim.login.machine import HOME, NSSM

_PROGRAMS: Final = (rf"{HOME}\kubelet.exe", rf"{HOME}\kube-proxy.exe", NSSM, r"C:\flannel\flanneld.exe")
SCRIPTS: Final = ("start.ps1", "stop.ps1", "start-kubelet.ps1", "start-kubeproxy.ps1", "register-svc.ps1")


def install(files: Files) -> None:
    """What is there stays as it is."""
    files.mkdir(HOME)
    files.mkdir(r"C:\flannel")
    for path in _PROGRAMS:
        if not files.exists(path):
            files.write(path, b"MZ", 0o755)
    for name in SCRIPTS:
        path = rf"{HOME}\{name}"
        if not files.exists(path):
            text = resources("transom.runtime.sim.login").joinpath("ps1", name).read_text()
            files.write(path, text.replace("\n", "\r\n").encode())
