"""The root file systems of images, in as much detail as needed: one frozen tree for all containers
of a userland.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_import
from transom.machines.inodes import Inode
from transom.machines.styles import POSIX, WINDOWS
from transom.machines.trees import (
    Entry,
    TreeDevice,
    TreeFile,
    TreeFolder,
    TreeLink,
    TreeOpenFolder,
    TreePrivateFolder,
    make_tree,
)
from transom.machines.windows.accounts import ADMINISTRATOR, USER
from transom.machines.windows.programs import NANO_SERVER_PROGRAMS, OF_WINDOWS
from transom.runtime.sim.users import GROUP_FILE, PASSWORD_FILE, account_files
from transom.userland.api import ImageInfo, Userland

if TYPE_CHECKING:
    from transom.userland.servers import tls, web
else:
    tls = lazy_import("transom.userland.servers.tls")
    web = lazy_import("transom.userland.servers.web")

_ELF = TreeFile(b"\x7fELF", 0o755)
_EXE = TreeFile(b"MZ", 0o755)
_BUSYBOX = (
    "cat",
    "cp",
    "date",
    "echo",
    "env",
    "expr",
    "false",
    "grep",
    "hostname",
    "kill",
    "ln",
    "ls",
    "mkdir",
    "mv",
    "nslookup",
    "ping",
    "printenv",
    "ps",
    "pwd",
    "rm",
    "sed",
    "sh",
    "sleep",
    "stat",
    "sync",
    "tar",
    "touch",
    "true",
    "uname",
    "wget",
)
_GNU = (
    "bash",
    "cat",
    "chmod",
    "chown",
    "cp",
    "date",
    "echo",
    "false",
    "grep",
    "hostname",
    "kill",
    "ln",
    "ls",
    "mkdir",
    "mv",
    "pwd",
    "rm",
    "sed",
    "sh",
    "sleep",
    "sync",
    "tar",
    "touch",
    "true",
    "uname",
)
_DEBIAN = TreeFile(
    b'PRETTY_NAME="Debian GNU/Linux 10 (buster)"\nNAME="Debian '
    b'GNU/Linux"\nVERSION_ID="10"\nVERSION="10 (buster)"\n'
    b'VERSION_CODENAME=buster\nID=debian\nHOME_URL="https://www.debian.org/"\n'
)
_ALPINE = TreeFile(
    b'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.12.3\nPRETTY_NAME="Alpine Linux v3.12"\n'
)
# busybox-w32, what Kubernetes' own images add to it, and the targets of the shell's aliases.
_WINDOWS_TOOLS = (
    "ash",
    "awk",
    "base64",
    "basename",
    "bash",
    "busybox",
    "cat",
    "chmod",
    "cp",
    "cut",
    "date",
    "dd",
    "df",
    "dirname",
    "du",
    "echo",
    "env",
    "expr",
    "false",
    "find",
    "free",
    "grep",
    "gunzip",
    "gzip",
    "head",
    "hexdump",
    "hostname",
    "id",
    "kill",
    "killall",
    "ln",
    "ls",
    "md5sum",
    "mkdir",
    "mktemp",
    "mv",
    "nc",
    "nl",
    "od",
    "paste",
    "pgrep",
    "pidof",
    "pkill",
    "printenv",
    "printf",
    "ps",
    "pwd",
    "readlink",
    "rm",
    "rmdir",
    "sed",
    "seq",
    "sh",
    "sha1sum",
    "sha256sum",
    "sleep",
    "sort",
    "stat",
    "tac",
    "tail",
    "tar",
    "tee",
    "test",
    "time",
    "timeout",
    "touch",
    "tr",
    "true",
    "truncate",
    "uname",
    "uniq",
    "uptime",
    "wc",
    "wget",
    "which",
    "whoami",
    "xargs",
    "xxd",
    "yes",
    "zcat",
)
_WITH_WINDOWS_TOOLS: dict[str, Entry] = {
    **{rf"C:\bin\{name}.exe": _EXE for name in _WINDOWS_TOOLS},
    r"C:\curl\curl.exe": _EXE,
    r"C:\dig\dig.exe": _EXE,
    r"C:\Program Files\PowerShell\pwsh.exe": _EXE,
    r"C:\Program Files\PowerShell\powershell.exe": _EXE,
    r"C:\tmp": TreeFolder(),
}
_HOSTS = TreeFile(b"# This is a sample HOSTS file used by Microsoft TCP/IP for Windows.\r\n")

_LINUX: dict[str, Entry] = {
    **dict.fromkeys(
        (
            "/dev/pts",
            "/etc",
            "/home",
            "/mnt",
            "/opt",
            "/proc",
            "/run",
            "/sys",
            "/usr/bin",
            "/usr/sbin",
        ),
        TreeFolder(),
    ),
    **dict.fromkeys(("/usr/local/bin", "/var/lib", "/var/log"), TreeFolder()),
    "/root": TreeFolder(0o700),
    "/tmp": TreeFolder(0o1777),
    "/var/tmp": TreeFolder(0o1777),
    "/dev/shm": TreeFolder(0o1777),
    "/var/run": TreeLink("/run"),
    **{
        f"/dev/{name}": TreeDevice()
        for name in ("null", "zero", "full", "random", "urandom", "tty")
    },
    "/etc/passwd": PASSWORD_FILE,
    "/etc/group": GROUP_FILE,
    "/etc/hosts": TreeFile(b""),
    "/etc/hostname": TreeFile(b""),
    "/etc/resolv.conf": TreeFile(b""),
}
_WINDOWS: dict[str, Entry] = {
    r"C:\Windows\System32\drivers\etc\hosts": _HOSTS,
    r"C:\Windows\System32\config": TreeFolder(),
    r"C:\Program Files": TreeFolder(),
    r"C:\ProgramData": TreeFolder(),
    r"C:\Users\Public": TreeOpenFolder(),
    r"C:\Users\ContainerUser": TreePrivateFolder(USER.sid),
    r"C:\Users\ContainerUser\AppData\Local\Temp": TreeFolder(),
    r"C:\Users\ContainerAdministrator": TreePrivateFolder(ADMINISTRATOR.sid),
    r"C:\Users\ContainerAdministrator\AppData\Local\Temp": TreeFolder(),
    r"C:\Windows\Temp": TreeOpenFolder(),
}


def _linux(userland: Userland) -> dict[str, Entry]:
    match userland:
        case "busybox":
            return {**{f"/bin/{name}": _ELF for name in _BUSYBOX}, "/etc/os-release": _ALPINE}
        case "none":
            return {}
        case _:
            return {**{f"/bin/{name}": _ELF for name in _GNU}, "/etc/os-release": _DEBIAN}


def _windows(userland: Userland) -> dict[str, Entry]:
    programs = NANO_SERVER_PROGRAMS if userland in ("busybox", "nanoserver") else OF_WINDOWS
    entries: dict[str, Entry] = {rf"C:\Windows\System32\{name}.exe": _EXE for name in programs}
    if userland == "busybox":
        entries |= _WITH_WINDOWS_TOOLS
    elif userland != "nanoserver":
        entries[r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"] = _EXE
    return entries


@cache
def _base(windows: bool, userland: Userland) -> Inode:
    if windows:
        return make_tree(WINDOWS, _WINDOWS | _windows(userland))
    return make_tree(POSIX, _LINUX | _linux(userland))


# Web servers come with a page, in a directory where users put their own pages.
_PAGES = {
    "nginx": "/usr/share/nginx/html/index.html",
    "httpd": "/usr/local/apache2/htdocs/index.html",
    "iis": "C:\\inetpub\\wwwroot\\iisstart.htm",
}


@cache
def _with_program(
    windows: bool,
    userland: Userland,
    path: str,
    page: str,
    picture: str,
    certificate: bool,
    member: str,
) -> Inode:
    entries: dict[str, Entry] = {path: _EXE if windows else _ELF} if path else {}
    if page:
        place = "C:" + page.replace("/", "\\") if windows and page.startswith("/") else page
        entries[place] = TreeFile(web.DEFAULT_PAGES[page])
    top = "C:\\" if windows else "/"
    if certificate:
        entries[top + "agnhost"] = _EXE if windows else _ELF  # on Windows too without .exe
        entries[top + "localhost.crt"], entries[top + "localhost.key"] = map(
            TreeFile, tls.untrusted_pair()
        )
    if picture:  # an image that serves one, and a page that names it
        entries[top + picture] = TreeFile(b"\xff\xd8\xff\xe0")
        entries[top + "data.json"] = TreeFile(f'{{\n  "image": "{picture}"\n}}\n'.encode())
    if member:
        entries |= account_files({"member": member})
    return make_tree(WINDOWS if windows else POSIX, entries, _base(windows, userland))


def root_of(image: ImageInfo) -> Inode:
    """With the image's own executable, if its entrypoint has a path."""
    windows = image.os == "windows"
    own = (image.entrypoint or image.cmd or ("",))[0]
    path, page = "", _PAGES.get(image.program, "")
    if own.startswith("/") and not own.startswith(("/bin/", "/usr/bin/")) and image.program:
        path = f"C:{own}.exe".replace("/", "\\") if windows else own
    picture = image.options.get("picture", "")
    certificate = image.program == "agnhost"
    member = "" if windows else image.options.get("member", "")
    if path or page or picture or certificate or member:
        return _with_program(windows, image.userland, path, page, picture, certificate, member)
    return _base(windows, image.userland)
