r"""The template: what Wine makes of an empty folder, turned into a lean Windows Server that all containers start from.

It is made once for a machine (some ten seconds) in a folder of the caller's, under a name that changes with Wine's version
and this recipe; what is there already is used as it is. Four parts:

- `drive_c`, the lowest layer of every C: drive. Wine's own files are links into the installation of this machine. Wine
  insists on its own spelling of `windows/system32`; all other folders are spelt as Windows spells them.
- the helpers that have their place in the system's folder, as a layer of their own.
- the registry's files, which a container gets as copies, with the identity of its build at the end.
- Wine's files with the texts of errors, in Windows' own words; containers see them in the place of the installed ones.
"""

from __future__ import annotations

import fcntl
import filecmp
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from transom.runtime.wine import messages, registry
from transom.runtime.wine.helpers import Helpers
from transom.runtime.wine.installation import Installation
from transom.windows.builds import Build

RECIPE: Final = 6  # to be raised with every change of what is made here

USER_ID: Final = 59302  # of those who are not administrators (those are 0): nobody's on the machine itself
REGISTRY_FILES: Final = ("system.reg", "user.reg", "userdef.reg")
_SECONDS: Final = 180
SYSTEM32: Final = "windows/system32"
_TEXTS: Final = "texts"
_PROFILE: Final = (
    "AppData/Local/Temp", "AppData/Local/Microsoft", "AppData/LocalLow", "AppData/Roaming/Microsoft", "Desktop", "Documents",
    "Downloads", "Favorites", "Links", "Music", "Pictures", "Saved Games", "Videos",
)  # fmt: skip
_PROFILES: Final = {"ContainerAdministrator": 0, "ContainerUser": USER_ID}
_IN_SYSTEM32: Final = {
    "winrun.exe": "CExecSvc.exe",  # what Windows calls the service that starts processes in a container
    "winctrl.exe": "winctrl.exe", "pipeserve.exe": "pipeserve.exe", "bcryptprimitives.dll": "bcryptprimitives.dll",
    "tar.exe": "tar.exe", "curl.exe": "curl.exe", "ipconfig.exe": "ipconfig.exe",
    "nslookup.exe": "nslookup.exe", "ping.exe": "ping.exe",
}  # fmt: skip
_STAND_IN: Final = "standin.exe"
_POWERSHELL: Final = f"{SYSTEM32}/WindowsPowerShell/v1.0"
STAND_INS: Final = (
    f"{_POWERSHELL}/powershell.exe", f"{_POWERSHELL}/pwsh.exe", "Program Files/PowerShell/7/pwsh.exe",
    *(f"{SYSTEM32}/{name}.exe" for name in ("findstr", "sort", "systeminfo", "tasklist", "timeout")),
)  # fmt: skip
_LAYOUT: Final = 2  # to be raised when a helper gets another place

_HOSTS: Final = """\
# Addresses and the names that belong to them, each pair on a line of its own.
# localhost and the name of this computer are known without one.
"""
_SERVICES: Final = r"System\CurrentControlSet\Services"
_DISABLED: Final = ("PlugPlay", "winebus", "winehid", "wineusb")  # nothing is plugged in
_ON_DEMAND: Final = ("Eventlog", "NDIS")
# Devices that would load their drivers, whatever their services say; programs that start with the system; multimedia; and
# how interfaces of components are marshalled between processes, which is a third of the registry.
_NEEDLESS: Final = (
    r"Software\Classes\Interface", r"Software\Classes\MediaFoundation", r"Software\Classes\DirectShow",
    r"Software\Classes\Media Type",
    r"System\CurrentControlSet\Enum\ROOT\WINE", r"System\CurrentControlSet\Enum\WINEBUS", r"System\CurrentControlSet\Enum\HID",
    r"Software\Microsoft\Windows\CurrentVersion\RunServices",
)  # fmt: skip
_CRASHES: Final = r"Software\Microsoft\Windows NT\CurrentVersion\AeDebug"
_DEMAND_START, _NO_START = 3, 4


@dataclass(frozen=True, slots=True)
class Template:
    folder: Path
    helpers: Path  # a layer

    @property
    def drive(self) -> Path:
        return self.folder / "drive_c"

    @property
    def texts(self) -> list[Path]:
        """Those that could be made of this Wine's files, whose names they have."""
        return sorted((self.folder / _TEXTS).iterdir())

    def write_registry(self, prefix: Path, build: Build, more: str = "") -> None:
        """Into a container's prefix, which is empty. `more`: sections of the container's own."""
        for name in REGISTRY_FILES:
            shutil.copyfile(self.folder / name, prefix / name)
        with open(prefix / "system.reg", "a", encoding="ascii") as file:
            file.write(identity(build) + more)
        shutil.copyfile(self.folder / ".update-timestamp", prefix / ".update-timestamp")
        (prefix / "dosdevices").mkdir()
        (prefix / "dosdevices" / "c:").symlink_to("../drive_c")


def identity(build: Build) -> str:
    """What the registry says of a build. CurrentVersion is 6.3 on Windows; Wine would take it for the version itself."""
    text, number = registry.text, registry.number
    current = {
        "CSDVersion": text(""), "CurrentBuild": text(str(build.number)), "CurrentBuildNumber": text(str(build.number)),
        "CurrentVersion": text("10.0"), "CurrentMajorVersionNumber": number(10), "CurrentMinorVersionNumber": number(0),
        "ProductName": text(build.product), "ReleaseId": text(build.release), "DisplayVersion": text(build.release),
        "UBR": number(build.ubr), "EditionID": text("ServerDatacenter"), "InstallationType": text("Server Core"),
        "BuildLab": text(f"{build.number}.wine"), "BuildLabEx": text(f"{build.number}.{build.ubr}.amd64fre.wine"),
    }  # fmt: skip
    return registry.sections(
        {
            r"Software\Microsoft\Windows NT\CurrentVersion": current,
            r"Software\Wow6432Node\Microsoft\Windows NT\CurrentVersion": current,
            r"System\CurrentControlSet\Control\ProductOptions": {"ProductType": text("ServerNT")},
            r"System\CurrentControlSet\Control\Windows": {"CSDVersion": number(0)},
        }
    )


def version(installation: Installation) -> str:
    words = re.sub(r"[^A-Za-z0-9.~+]+", "-", installation.version()).strip("-")
    return f"{words}-r{RECIPE}"


def place(cache: Path, installation: Installation) -> Path:
    """Where the template of this Wine and this recipe is, or will be."""
    return cache / f"template-{version(installation)}"


def prepare(cache: Path, installation: Installation, helpers: Helpers) -> Template:
    """The template, made if it is not there. Blocks; raises OSError or SubprocessError."""
    folder, layer = place(cache, installation), cache / f"helpers-{_LAYOUT}-{helpers.hash((*_IN_SYSTEM32, _STAND_IN))}"
    if not (folder.is_dir() and layer.is_dir()):
        cache.mkdir(parents=True, exist_ok=True)
        with _only_one(cache / "template.lock"):
            for left in cache.glob("making-*"):  # by somebody who was killed
                shutil.rmtree(left, ignore_errors=True)
            work = Path(tempfile.mkdtemp(prefix="making-", dir=cache))
            try:
                if not layer.is_dir():
                    _make_layer(work / "helpers", helpers)
                    (work / "helpers").rename(layer)
                if not folder.is_dir():
                    _make(work, installation)
                    (work / "template").rename(folder)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return Template(folder, layer)


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make_layer(target: Path, helpers: Helpers) -> None:
    target.mkdir()
    places = [(helper, f"{SYSTEM32}/{name}") for helper, name in _IN_SYSTEM32.items()]
    for helper, place in (*places, *((_STAND_IN, place) for place in STAND_INS)):
        path = helpers.get(helper)
        if path is not None:
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / place)
            (target / place).chmod(0o755)


def _make(work: Path, installation: Installation) -> None:
    prefix, template = work / "prefix", work / "template"
    # A home that is not there: Wine makes plain folders instead of links to it.
    quiet = subprocess.DEVNULL
    environment = {**installation.environment(str(prefix)), "HOME": str(work / "home")}
    try:
        for command in ([str(installation.loader), "wineboot.exe", "--init"], [str(installation.server), "--wait"]):
            subprocess.run(command, env=environment, timeout=_SECONDS, check=True, stdin=quiet, stdout=quiet, stderr=quiet)
    except BaseException:  # what it has started would go on in a prefix that nobody wants
        subprocess.run([str(installation.server), "--kill"], env=environment, timeout=_SECONDS, check=False,
                       stdin=quiet, stdout=quiet, stderr=quiet)  # fmt: skip
        raise
    template.mkdir(mode=0o755)
    _slim(prefix / "drive_c", template / "drive_c", installation.libraries)
    (template / "drive_c" / "users").rename(template / "drive_c" / "Users")
    _fill(template / "drive_c")
    owner = next(entry.name for entry in (prefix / "drive_c" / "users").iterdir() if entry.name != "Public")
    for name in REGISTRY_FILES:
        content = (prefix / name).read_text(encoding="latin-1")
        content = content.replace(rf"\\users\\{owner}", r"\\Users\\ContainerAdministrator")
        (template / name).write_text(_lean(name, content), encoding="latin-1")
    (template / ".update-timestamp").write_text("disable\n")
    (template / _TEXTS).mkdir()
    for name, change in messages.CHANGES.items():
        file = installation.windows_libraries / name
        changed = change(file.read_bytes()) if file.exists() else None
        if changed is not None:
            (template / _TEXTS / name).write_bytes(changed)


def _slim(source: Path, target: Path, libraries: Path) -> None:
    """A copy in which links stand for the files of the installation."""
    installed = {
        (file.name, file.stat().st_size): file
        for folder in ("x86_64-windows", "i386-windows")
        if (libraries / folder).is_dir()
        for file in (libraries / folder).iterdir()
    }
    for place, folders, files in os.walk(source):
        here = target / os.path.relpath(place, source)
        here.mkdir(parents=True, exist_ok=True)
        for name in [name for name in folders if os.path.islink(os.path.join(place, name))]:
            folders.remove(name)
        for name in files:
            path = Path(place, name)
            if path.is_symlink():
                continue
            same = installed.get((name, path.stat().st_size))
            if same is not None and filecmp.cmp(path, same, shallow=False):
                (here / name).symlink_to(same)
            else:
                shutil.copy2(path, here / name)


def _fill(drive: Path) -> None:
    users = drive / "Users"
    for entry in users.iterdir():
        if entry.name != "Public":
            shutil.rmtree(entry)
    for name, owner in _PROFILES.items():
        make_profile(users / name, owner if os.geteuid() == 0 else 0)
    (drive / SYSTEM32 / "drivers" / "etc" / "hosts").write_text(_HOSTS, newline="\r\n")
    (drive / "windows" / "temp").chmod(0o1777)
    (drive / "ProgramData").chmod(0o1777)


def make_profile(folder: Path, owner: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in _PROFILE:
        (folder / name).mkdir(parents=True, exist_ok=True)
    if owner:
        for place, _, _ in os.walk(folder):
            os.chown(place, owner, owner)


def _lean(name: str, content: str) -> str:
    if name != "system.reg":
        temp = registry.expanded(r"%USERPROFILE%\AppData\Local\Temp")
        return content + (registry.section("Environment", {"TEMP": temp, "TMP": temp}) if name == "user.reg" else "")
    starts = dict.fromkeys(_DISABLED, _NO_START) | dict.fromkeys(_ON_DEMAND, _DEMAND_START)
    settings = {rf"{_SERVICES}\{service}": {"Start": registry.number(start)} for service, start in starts.items()}
    settings[_CRASHES] = {"Debugger": registry.text("none"), "Auto": registry.text("1")}  # else Wine's own prints a page
    return registry.without(content, _NEEDLESS) + registry.sections(settings)
