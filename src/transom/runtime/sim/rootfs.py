"""What is in an image's file system, as far as anybody looks: one frozen tree for all containers of a userland."""

from __future__ import annotations

from functools import cache

from transom.hosts.nodes import Node
from transom.hosts.styles import POSIX, WINDOWS
from transom.hosts.trees import Device, Entry, File, Folder, Link, Open, tree
from transom.runtime.sim.program_api import ImageInfo, Userland
from transom.runtime.sim.users import GROUP_FILE, PASSWORD_FILE

_ELF = File(b"\x7fELF", 0o755)
_EXE = File(b"MZ", 0o755)
_BUSYBOX = (
    "cat", "cp", "date", "echo", "env", "false", "grep", "hostname", "kill", "ln", "ls", "mkdir", "mv", "nslookup",
    "ping", "printenv", "ps", "pwd", "rm", "sed", "sh", "sleep", "stat", "sync", "tar", "touch", "true", "uname", "wget",
)  # fmt: skip
_GNU = (
    "bash", "cat", "chmod", "chown", "cp", "date", "echo", "false", "grep", "hostname", "kill", "ln", "ls", "mkdir",
    "mv", "pwd", "rm", "sed", "sh", "sleep", "sync", "tar", "touch", "true", "uname",
)  # fmt: skip
_DEBIAN = File(
    b'PRETTY_NAME="Debian GNU/Linux 10 (buster)"\nNAME="Debian GNU/Linux"\nVERSION_ID="10"\nVERSION="10 (buster)"\n'
    b'VERSION_CODENAME=buster\nID=debian\nHOME_URL="https://www.debian.org/"\n'
)
_ALPINE = File(b'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.12.3\nPRETTY_NAME="Alpine Linux v3.12"\n')
_SYSTEM32 = (
    "cmd", "curl", "find", "findstr", "hostname", "ipconfig", "more", "nslookup", "ping", "tar", "tasklist", "timeout",
    "whoami", "xcopy",
)  # fmt: skip
# busybox-w32, what Kubernetes' own images put beside it, and where the shell's shorter names lead.
_WINDOWS_TOOLS = (
    "ash", "awk", "base64", "basename", "bash", "busybox", "cat", "chmod", "cp", "cut", "date", "dd", "df",
    "dirname", "du", "echo", "env", "false", "find", "free", "grep", "gunzip", "gzip", "head", "hexdump", "hostname",
    "id", "kill", "killall", "ln", "ls", "md5sum", "mkdir", "mktemp", "mv", "nc", "nl", "od", "paste", "pgrep", "pidof",
    "pkill", "printenv", "printf", "ps", "pwd", "readlink", "rm", "rmdir", "sed", "seq", "sh", "sha1sum", "sha256sum", "sleep",
    "sort", "stat", "tac", "tail", "tar", "tee", "test", "time", "timeout", "touch", "tr", "true",
    "truncate", "uname", "uniq", "uptime", "wc", "wget", "which", "whoami", "xargs", "xxd", "yes", "zcat",
)  # fmt: skip
_WITH_WINDOWS_TOOLS: dict[str, Entry] = {
    **{rf"C:\bin\{name}.exe": _EXE for name in _WINDOWS_TOOLS},
    r"C:\curl\curl.exe": _EXE,
    r"C:\dig\dig.exe": _EXE,
    r"C:\Program Files\PowerShell\pwsh.exe": _EXE,
    r"C:\Program Files\PowerShell\powershell.exe": _EXE,
    r"C:\tmp": Folder(),
}
_HOSTS = File(b"# This is a sample HOSTS file used by Microsoft TCP/IP for Windows.\r\n")

_LINUX: dict[str, Entry] = {
    **dict.fromkeys(("/dev/pts", "/etc", "/home", "/mnt", "/opt", "/proc", "/run", "/sys", "/usr/bin", "/usr/sbin"), Folder()),
    **dict.fromkeys(("/usr/local/bin", "/var/lib", "/var/log"), Folder()),
    "/root": Folder(0o700),
    "/tmp": Folder(0o1777),
    "/var/tmp": Folder(0o1777),
    "/dev/shm": Folder(0o1777),
    "/var/run": Link("/run"),
    **{f"/dev/{name}": Device() for name in ("null", "zero", "full", "random", "urandom", "tty")},
    "/etc/passwd": PASSWORD_FILE,
    "/etc/group": GROUP_FILE,
    "/etc/hosts": File(b""),
    "/etc/hostname": File(b""),
    "/etc/resolv.conf": File(b""),
}
_WINDOWS: dict[str, Entry] = {
    r"C:\Windows\System32\drivers\etc\hosts": _HOSTS,
    r"C:\Windows\System32\config": Folder(),
    r"C:\Program Files": Folder(),
    r"C:\ProgramData": Folder(),
    r"C:\Users\Public": Open(),
    r"C:\Users\ContainerUser": Open(),
    r"C:\Users\ContainerUser\AppData\Local\Temp": Open(),
    r"C:\Users\ContainerAdministrator\AppData\Local\Temp": Folder(),
    r"C:\Windows\Temp": Open(),
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
    entries: dict[str, Entry] = {rf"C:\Windows\System32\{name}.exe": _EXE for name in _SYSTEM32}
    if userland == "busybox":
        entries |= _WITH_WINDOWS_TOOLS
    elif userland != "nanoserver":
        entries[r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"] = _EXE
    return entries


@cache
def _base(windows: bool, userland: Userland) -> Node:
    if windows:
        return tree(WINDOWS, _WINDOWS | _windows(userland))
    return tree(POSIX, _LINUX | _linux(userland))


# Web servers come with a page, in a folder into which people put pages of their own.
_PAGES = {
    "nginx": "/usr/share/nginx/html/index.html",
    "httpd": "/usr/local/apache2/htdocs/index.html",
    "iis": "C:\\inetpub\\wwwroot\\iisstart.htm",
}


@cache
def _with_program(windows: bool, userland: Userland, path: str, page: str, picture: str) -> Node:
    entries: dict[str, Entry] = {path: _EXE if windows else _ELF} if path else {}
    if page:
        from transom.runtime.sim.programs.servers.web import DEFAULT_PAGES

        place = "C:" + page.replace("/", "\\") if windows and page.startswith("/") else page
        entries[place] = File(DEFAULT_PAGES[page])
    if picture:  # an image that serves one, and a page that names it
        top = "C:\\" if windows else "/"
        entries[top + picture] = File(b"\xff\xd8\xff\xe0")
        entries[top + "data.json"] = File(f'{{\n  "image": "{picture}"\n}}\n'.encode())
    return tree(WINDOWS if windows else POSIX, entries, _base(windows, userland))


def root_of(image: ImageInfo) -> Node:
    """With the image's own executable, where its entrypoint says where that is."""
    windows = image.os == "windows"
    own = (image.entrypoint or image.cmd or ("",))[0]
    path, page = "", _PAGES.get(image.program, "")
    if own.startswith("/") and not own.startswith(("/bin/", "/usr/bin/")) and image.program:
        path = f"C:{own}.exe".replace("/", "\\") if windows else own
    picture = image.options.get("picture", "")
    if path or page or picture:
        return _with_program(windows, image.userland, path, page, picture)
    return _base(windows, image.userland)
