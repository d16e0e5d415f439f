r"""The template: a new Wine prefix, turned into a lean Windows Server that all containers start from.

It is built once per machine (some ten seconds) in a directory of the caller, under a name that
changes with Wine's version and this recipe; an existing one is used unchanged. Four parts:

- `drive_c`, the lowest layer of every C: drive. Wine's own files are links into the installation of
  this machine. Wine requires its own spelling of `windows/system32`; all other directories have
  Windows' spelling.
- the helpers that belong in the system directory, as a separate layer.
- the registry files, which a container gets as copies, with the identity of its build at the end.
- modified copies of some of Wine's files (see `changes.py`), which replace the installed ones in
  containers.
"""

from __future__ import annotations

import fcntl
import filecmp
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.kit.programs import run_program
from transom.machines.windows.accounts import WindowsUser
from transom.runtime.wine import changes, registry
from transom.runtime.wine.helpers import Helpers
from transom.runtime.wine.installation import WineInstallation
from transom.windows.builds import WindowsBuild

RECIPE: Final = 10  # increment with every change of the content

USER_ID: Final = (
    59302  # for accounts that are not administrators (those are 0): unused on the machine itself
)
REGISTRY_FILES: Final = ("system.reg", "user.reg", "userdef.reg")
_SECONDS: Final = 180
SYSTEM32: Final = "windows/system32"
_CHANGED: Final = "changed"
_SERVERS: Final = "servers"
_EMPTY: Final = "empty"
PROFILE: Final = (
    "AppData/Local/Temp",
    "AppData/Local/Microsoft",
    "AppData/LocalLow",
    "AppData/Roaming/Microsoft",
    "Desktop",
    "Documents",
    "Downloads",
    "Favorites",
    "Links",
    "Music",
    "Pictures",
    "Saved Games",
    "Videos",
)
_PROFILES: Final = {"ContainerAdministrator": 0, "ContainerUser": USER_ID}
_IN_SYSTEM32: Final = {
    # Windows' name of the service that starts processes in a container
    "winrun.exe": "CExecSvc.exe",
    "winctrl.exe": "winctrl.exe",
    "pipeserve.exe": "pipeserve.exe",
    "bcryptprimitives.dll": "bcryptprimitives.dll",
    "tar.exe": "tar.exe",
    "curl.exe": "curl.exe",
    "ipconfig.exe": "ipconfig.exe",
    "nslookup.exe": "nslookup.exe",
    "ping.exe": "ping.exe",
}
_STAND_IN: Final = "standin.exe"
_POWERSHELL: Final = f"{SYSTEM32}/WindowsPowerShell/v1.0"
STAND_INS: Final = (
    f"{_POWERSHELL}/powershell.exe",
    f"{_POWERSHELL}/pwsh.exe",
    "Program Files/PowerShell/7/pwsh.exe",
    *(
        f"{SYSTEM32}/{name}.exe"
        for name in (
            "findstr",
            "sort",
            "systeminfo",
            "taskkill",
            "tasklist",
            "timeout",
            "wbem/wmic",
            "whoami",
        )
    ),
)
_LAYOUT: Final = 5  # increment when a helper moves

_HOSTS: Final = """\
# Addresses and the names that belong to them, each pair on a line of its own.
# localhost and the name of this computer are known without one.
"""
_SERVICES: Final = r"System\CurrentControlSet\Services"
_DISABLED: Final = ("PlugPlay", "winebus", "winehid", "wineusb")  # nothing is plugged in
_ON_DEMAND: Final = ("Eventlog", "NDIS")
# Devices that would load their drivers, whatever their services specify; programs that start with
# the system; multimedia; and the marshalling of COM interfaces, which is a third of the registry.
_NEEDLESS: Final = (
    r"Software\Classes\Interface",
    r"Software\Classes\MediaFoundation",
    r"Software\Classes\DirectShow",
    r"Software\Classes\Media Type",
    r"System\CurrentControlSet\Enum\ROOT\WINE",
    r"System\CurrentControlSet\Enum\WINEBUS",
    r"System\CurrentControlSet\Enum\HID",
    r"Software\Microsoft\Windows\CurrentVersion\RunServices",
)
_CRASHES: Final = r"Software\Microsoft\Windows NT\CurrentVersion\AeDebug"
_DEMAND_START, _NO_START = 3, 4


@dataclass(frozen=True, slots=True)
class WineTemplate:
    folder: Path
    helpers: Path  # a layer

    @property
    def drive(self) -> Path:
        return self.folder / "drive_c"

    @property
    def empty(self) -> Path:
        """A directory without content: the layer of an image that has none."""
        return self.folder / _EMPTY

    def replacements(self, installation: WineInstallation, user: WindowsUser) -> dict[Path, Path]:
        """The files that replace those of the installation in containers of an account, as far as
        this Wine allows.
        """
        files = sorted((self.folder / _CHANGED).iterdir())
        found = {installation.windows_libraries / file.name: file for file in files}
        server = self.folder / _SERVERS / user.sid
        return found | ({installation.server.resolve(): server} if server.is_file() else {})

    def write_registry(self, prefix: Path, build: WindowsBuild, more: str = "") -> None:
        """Copies it into an empty container prefix. `more`: sections of the container's own."""
        for name in REGISTRY_FILES:
            shutil.copyfile(self.folder / name, prefix / name)
        with open(prefix / "system.reg", "a", encoding="ascii") as file:
            file.write(template_identity(build) + more)
        shutil.copyfile(self.folder / ".update-timestamp", prefix / ".update-timestamp")
        (prefix / "dosdevices").mkdir()
        (prefix / "dosdevices" / "c:").symlink_to("../drive_c")


def template_identity(build: WindowsBuild) -> str:
    """The registry values of a build. CurrentVersion is 6.3 on Windows; Wine would use it as the
    version itself.
    """
    text, number = registry.registry_text, registry.registry_number
    current = {
        "CSDVersion": text(""),
        "CurrentBuild": text(str(build.number)),
        "CurrentBuildNumber": text(str(build.number)),
        "CurrentVersion": text("10.0"),
        "CurrentMajorVersionNumber": number(10),
        "CurrentMinorVersionNumber": number(0),
        "ProductName": text(build.product),
        "ReleaseId": text(build.release),
        "DisplayVersion": text(build.release),
        "UBR": number(build.ubr),
        "EditionID": text("ServerDatacenter"),
        "InstallationType": text("Server Core"),
        "BuildLab": text(f"{build.number}.wine"),
        "BuildLabEx": text(f"{build.number}.{build.ubr}.amd64fre.wine"),
    }
    return registry.registry_sections(
        {
            r"Software\Microsoft\Windows NT\CurrentVersion": current,
            r"Software\Wow6432Node\Microsoft\Windows NT\CurrentVersion": current,
            r"System\CurrentControlSet\Control\ProductOptions": {"ProductType": text("ServerNT")},
            r"System\CurrentControlSet\Control\Windows": {"CSDVersion": number(0)},
            r"System\CurrentControlSet\Control": {"WaitToKillServiceTimeout": text("5000")},
        }
    )


def template_version(installation: WineInstallation) -> str:
    words = re.sub(r"[^A-Za-z0-9.~+]+", "-", installation.version()).strip("-")
    return f"{words}-r{RECIPE}"


def template_folder(cache: Path, installation: WineInstallation) -> Path:
    """The path of the template for this Wine and this recipe, whether it exists or not."""
    return cache / f"template-{template_version(installation)}"


def prepare_template(cache: Path, installation: WineInstallation, helpers: Helpers) -> WineTemplate:
    """The template, built if it does not exist. Blocks; raises OSError or SubprocessError."""
    folder, layer = (
        template_folder(cache, installation),
        cache / f"helpers-{_LAYOUT}-{helpers.hash((*_IN_SYSTEM32, _STAND_IN))}",
    )
    if not (folder.is_dir() and layer.is_dir()):
        cache.mkdir(parents=True, exist_ok=True)
        with _only_one(cache / "template.lock"):
            for left in cache.glob("making-*"):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            work = Path(tempfile.mkdtemp(prefix="making-", dir=cache))
            try:
                if not layer.is_dir():
                    _make_layer(work / "helpers", helpers)
                    (work / "helpers").rename(layer)
                if not folder.is_dir():
                    _make(work, installation, helpers)
                    (work / "template").rename(folder)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return WineTemplate(folder, layer)


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


def _make(work: Path, installation: WineInstallation, helpers: Helpers) -> None:
    prefix, template = work / "prefix", work / "template"
    # A missing home directory makes Wine create plain directories instead of links to it.
    environment = {**installation.environment(str(prefix)), "HOME": str(work / "home")}
    try:
        for command in (
            [str(installation.loader), "wineboot.exe", "--init"],
            [str(installation.server), "--wait"],
        ):
            run_program(command, env=environment, timeout=_SECONDS, check=True, capture=False)
    except BaseException:  # what it has started would keep running in an unused prefix
        run_program(
            [str(installation.server), "--kill"], env=environment, timeout=_SECONDS, capture=False
        )
        raise
    template.mkdir(mode=0o755)
    _slim(prefix / "drive_c", template / "drive_c", installation.libraries)
    (template / "drive_c" / "users").rename(template / "drive_c" / "Users")
    _fill(template / "drive_c")
    owner = next(
        entry.name for entry in (prefix / "drive_c" / "users").iterdir() if entry.name != "Public"
    )
    for name in REGISTRY_FILES:
        content = (prefix / name).read_text(encoding="latin-1")
        content = content.replace(rf"\\users\\{owner}", r"\\Users\\ContainerAdministrator")
        (template / name).write_text(_lean(name, content), encoding="latin-1")
    (template / ".update-timestamp").write_text("disable\n")
    (template / _CHANGED).mkdir()
    library = helpers.get("hidevars.dll")
    for name, steps in changes.file_changes(library.read_bytes() if library else None).items():
        file = installation.windows_libraries / name
        changed = changes.apply_file_changes(file.read_bytes(), steps) if file.exists() else None
        if changed is not None:
            (template / _CHANGED / name).write_bytes(changed)
    (template / _EMPTY).mkdir()
    (template / _SERVERS).mkdir()
    for user in changes.ACCOUNTS:
        server = changes.server_for(installation.server.read_bytes(), user)
        if server is not None:
            (template / _SERVERS / user.sid).write_bytes(server)
            (template / _SERVERS / user.sid).chmod(0o755)


def _slim(source: Path, target: Path, libraries: Path) -> None:
    """A copy with links for the files of the installation."""
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
        make_template_profile(users / name, owner if os.geteuid() == 0 else 0)
    (drive / SYSTEM32 / "drivers" / "etc" / "hosts").write_text(_HOSTS, newline="\r\n")
    (drive / "windows" / "temp").chmod(0o1777)
    (drive / "ProgramData").chmod(0o1777)


def make_template_profile(folder: Path, owner: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROFILE:
        (folder / name).mkdir(parents=True, exist_ok=True)
    if owner:
        for place, _, _ in os.walk(folder):
            os.chown(place, owner, owner)


def _lean(name: str, content: str) -> str:
    if name != "system.reg":
        temp = registry.registry_expand_text(r"%USERPROFILE%\AppData\Local\Temp")
        own = {
            "Environment": {"TEMP": temp, "TMP": temp},
            # there is no display
            r"Software\Wine\Drivers": {"Graphics": registry.registry_text("null")},
        }
        return content + (registry.registry_sections(own) if name == "user.reg" else "")
    starts = dict.fromkeys(_DISABLED, _NO_START) | dict.fromkeys(_ON_DEMAND, _DEMAND_START)
    settings = {
        rf"{_SERVICES}\{service}": {"Start": registry.registry_number(start)}
        for service, start in starts.items()
    }
    settings[_CRASHES] = {
        "Debugger": registry.registry_text("none"),
        "Auto": registry.registry_text("1"),
    }  # otherwise Wine's own prints a page
    return registry.without_sections(content, _NEEDLESS) + registry.registry_sections(settings)
