r"""The FlexVolume drivers that can be installed on a simulated Windows node: microsoft.com~smb.cmd
and microsoft.com~iscsi.cmd.

They are scripts in the node's plugin directory, with the interface of Microsoft's; the simulated
PowerShell runs them, and users who log in can read, change and remove them.
"""

from __future__ import annotations

from importlib.resources import files as resources
from typing import Final

from transom.machines.api import Files

FOLDER: Final = r"C:\usr\libexec\kubernetes\kubelet-plugins\volume\exec"
HELPER: Final = "iscsiHelper"
_DRIVERS: Final = {"smb": (), "iscsi": (f"{HELPER}.exe",)}


def install_flex_driver_files(files: Files, wanted: bool) -> None:
    """Installs or removes them. Existing files are kept: a user may have changed them."""
    for name, programs in _DRIVERS.items():
        folder = rf"{FOLDER}\microsoft.com~{name}.cmd"
        if not wanted:
            files.remove(folder, recursive=True)
            continue
        files.mkdir(folder)
        scripts = {
            f"{name}.cmd": "driver.cmd",
            f"{name}.ps1": f"{name}.ps1",
            "flexvolume.ps1": "flexvolume.ps1",
        }
        for target, source in scripts.items():
            if not files.exists(rf"{folder}\{target}"):
                text = (
                    resources("transom.runtime.sim.login")
                    .joinpath("flexvolume", source)
                    .read_text()
                )
                files.write(rf"{folder}\{target}", text.replace("\n", "\r\n").encode())
        for program in programs:
            if not files.exists(rf"{folder}\{program}"):
                files.write(rf"{folder}\{program}", b"MZ", 0o755)
