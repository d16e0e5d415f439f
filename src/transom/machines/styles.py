"""The operating-system-specific part of a file system: path notation, error texts and file
metadata.

A path becomes a list of names; a drive, a share or the pipe directory is the first name of a
Windows path. `fold` creates the keys under which directories store those names.
"""

from __future__ import annotations

import errno
import ntpath
import os
import posixpath
from typing import Final, Protocol

from transom.kit.lazy import lazy_pattern
from transom.kit.named_tuple import NamedTuple
from transom.machines import security
from transom.machines.api import Stat
from transom.machines.inodes import FORMAT_MASK, KIND, Data, Inode, NamedInode, content_length

PAGE: Final = 4096
PIPES: Final = "\\\\.\\pipe"
VOLUME: Final = "\\\\?\\volume{"
NUL: Final = "NUL"  # the same device in every directory

READ, WRITE, SEARCH = 4, 2, 1
_STICKY: Final = 0o1000  # like /tmp: only owners may remove entries


class FileUser(NamedTuple):
    """The calling user, unless unrestricted. On Windows `sids` apply: all identities of the
    user.
    """

    uid: int
    gid: int = 0
    groups: frozenset[int] = frozenset()
    sids: frozenset[str] = frozenset()
    sid: str = ""  # the owner of what the user creates


class PathStyle(Protocol):
    node: type[Inode]
    has_owners: bool

    def split(self, path: str) -> list[str]: ...
    def parent(self, path: str) -> str: ...
    def join(self, directory: str, name: str) -> str: ...
    def fold(self, names: list[str]) -> list[str]: ...
    def follow(self, directory: list[str], target: str) -> list[str]:
        """The target of a link in a directory."""

    def error(self, code: int, path: str, *, parent: bool = False) -> OSError:
        """`parent`: it is a missing parent directory."""

    def blocks(self, data: Data) -> int:
        """Bytes on the disk."""

    def stat(self, node: Inode) -> Stat: ...
    def may(self, user: FileUser, node: Inode, wanted: int) -> bool: ...
    def owns(self, user: FileUser, node: Inode) -> bool: ...
    def may_remove(self, user: FileUser, parent: Inode, node: Inode) -> bool:
        """Whether it may be removed from its directory."""

    def created_by(self, user: FileUser | None, parent: Inode) -> int:
        """The owner of a new node."""

    def aliased(self, entries: dict[str, Inode], key: str) -> str | None:
        """The key of an entry's alternative name in a directory."""

    def changed_mode(self, node: Inode, mode: int) -> int: ...
    def write_protected(self, node: Inode) -> bool:
        """Applies even to unrestricted users."""

    def check_name(self, name: str, path: str) -> None: ...
    def check_replace(self, node: Inode, there: Inode, path: str) -> None:
        """Whether `node` may be renamed over `there`."""

    def may_add_root(self, name: str) -> bool:
        """Whether a path may begin with a new first name."""

    def is_remote(self, root: str) -> bool:
        """Whether the first name of a path is a share, or a volume of a disk other than the
        machine's own.
        """


class PosixStyle:
    node = Inode
    has_owners = True

    def split(self, path: str) -> list[str]:
        names = path.split("/")
        if not names[0]:
            del names[0]
        if "" in names or "." in names:  # few paths contain any
            return [name for name in names if name and name != "."]
        return names

    def parent(self, path: str) -> str:
        return posixpath.dirname(path)

    def join(self, directory: str, name: str) -> str:
        return f"{directory}/{name}"

    def fold(self, names: list[str]) -> list[str]:
        return names

    def follow(self, directory: list[str], target: str) -> list[str]:
        names = self.split(target)
        return names if target.startswith("/") else directory + names

    def error(self, code: int, path: str, *, parent: bool = False) -> OSError:
        return OSError(code, os.strerror(code), path)

    def blocks(self, data: Data) -> int:
        if type(data) is dict:
            return PAGE
        if type(data) is str:
            return 0 if len(data) < 60 else PAGE  # a short target is stored in the inode
        return -(-content_length(data) // PAGE) * PAGE

    def stat(self, node: Inode) -> Stat:
        data = node.data
        if type(data) is dict:
            size = PAGE
        else:
            size = len(data.encode()) if type(data) is str else content_length(data)
        if node.of_windows:  # on a Windows server's share: all files belong to root, mode 0777
            return Stat(KIND[node.mode & FORMAT_MASK], 0o777, 0, 0, size, node.mtime)
        uid, gid = node.owner >> 32, node.owner & 0xFFFFFFFF
        return Stat(KIND[node.mode & FORMAT_MASK], node.mode & 0o7777, uid, gid, size, node.mtime)

    def may(self, user: FileUser, node: Inode, wanted: int) -> bool:
        uid, gid = node.owner >> 32, node.owner & 0xFFFFFFFF
        if uid == user.uid:
            bits = node.mode >> 6
        elif gid == user.gid or gid in user.groups:
            bits = node.mode >> 3
        else:
            bits = node.mode
        return bits & wanted == wanted

    def owns(self, user: FileUser, node: Inode) -> bool:
        return node.owner >> 32 == user.uid

    def may_remove(self, user: FileUser, parent: Inode, node: Inode) -> bool:
        if not self.may(user, parent, WRITE | SEARCH):
            return False
        return not parent.mode & _STICKY or self.owns(user, node) or self.owns(user, parent)

    def aliased(self, entries: dict[str, Inode], key: str) -> str | None:
        return None

    def created_by(self, user: FileUser | None, parent: Inode) -> int:
        uid, gid = (user.uid, user.gid) if user is not None else (0, 0)
        if parent.mode & 0o2000:  # setgid: how a volume's group propagates to its files
            gid = parent.owner & 0xFFFFFFFF
        return uid << 32 | gid

    def changed_mode(self, node: Inode, mode: int) -> int:
        return (node.mode & ~0o7777) | (mode & 0o7777)

    def write_protected(self, node: Inode) -> bool:
        return False

    def check_name(self, name: str, path: str) -> None:
        if len(name) > 85 and len(name.encode()) > 255:
            raise self.error(errno.ENAMETOOLONG, path)

    def check_replace(self, node: Inode, there: Inode, path: str) -> None:
        if type(there.data) is dict:
            if type(node.data) is not dict:
                raise self.error(errno.EISDIR, path)
            if there.data:
                raise self.error(errno.ENOTEMPTY, path)
        elif type(node.data) is dict:
            raise self.error(errno.ENOTDIR, path)

    def may_add_root(self, name: str) -> bool:
        return True

    def is_remote(self, root: str) -> bool:
        return False


# Windows' code and text for each errno:
# https://learn.microsoft.com/windows/win32/debug/system-error-codes
_WINDOWS: dict[int, tuple[int, str]] = {
    errno.ENOENT: (2, "The system cannot find the file specified."),
    errno.EACCES: (5, "Access is denied."),
    errno.EISDIR: (5, "Access is denied."),
    errno.EXDEV: (17, "The system cannot move the file to a different disk drive."),
    errno.EBUSY: (
        32,
        "The process cannot access the file because it is being used by another process.",
    ),
    errno.ENOSPC: (112, "There is not enough space on the disk."),
    errno.EINVAL: (87, "The parameter is incorrect."),
    errno.ENOTEMPTY: (145, "The directory is not empty."),
    errno.EEXIST: (183, "Cannot create a file when that file already exists."),
    errno.ENAMETOOLONG: (206, "The filename or extension is too long."),
    errno.ENOTDIR: (267, "The directory name is invalid."),
    errno.ELOOP: (1921, "The name of the file cannot be resolved by the system."),
    errno.ENXIO: (1920, "The file cannot be accessed by the system."),
    errno.ENOTSUP: (
        0x20000000,
        "not supported by windows",
    ),  # Go's own text, because the system has no such call
}
_PATH_NOT_FOUND = (3, "The system cannot find the path specified.")
_BAD_NETWORK_PATH = (53, "The network path was not found.")
_INVALID_NAME = (123, "The filename, directory name, or volume label syntax is incorrect.")
_DEVICES: Final = frozenset(
    (
        "con",
        "prn",
        "aux",
        "nul",
        "conin$",
        "conout$",
        *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)),
    )
)
_DEVICE_LETTERS: Final = frozenset("cCpPaAnNlL")
_RIGHTS: Final = {READ: security.READ_DATA, WRITE: security.WRITE_DATA}
_FORBIDDEN = lazy_pattern(r'[<>:"|?*\x00-\x1f]')
_DRIVE = lazy_pattern(r"[A-Za-z]:")


def _windows_error(code: int, text: tuple[int, str], path: str) -> OSError:
    failure = OSError(code, text[1], path)
    # As on Windows itself; OSError lacks this field elsewhere.
    failure.__dict__["winerror"] = text[0]
    return failure


def windows_error_code(error: OSError, default: int = 0) -> int:
    """The code of a Windows system error; `default` for other errors."""
    return int(error.__dict__.get("winerror", default))


class WindowsStyle:
    """Names are case-preserving and case-insensitive. A file has attributes (read-only, hidden,
    system) and an access control list, whose number replaces the owner. Everyone may traverse every
    directory.
    """

    node: type[Inode] = NamedInode
    has_owners = False

    def split(self, path: str) -> list[str]:
        path = path.replace("/", "\\")
        if path[:11].lower() == VOLUME:  # \\\\?\\Volume{GUID}\\: a volume without a drive letter
            root, _, rest = path[4:].partition("\\")
            return ["\\\\?\\" + root, *self.split("C:\\" + rest)[1:]]
        literal = path.startswith("\\\\?\\")
        if literal:
            path = "\\\\" + path[8:] if path[4:8].upper() == "UNC\\" else path[4:]
        names: list[str] = []
        if path.startswith("\\\\"):
            server, _, rest = path[2:].partition("\\")
            share, _, rest = rest.partition("\\")
            root = f"\\\\{server}\\{share}"
            if root.lower() == PIPES:
                return [PIPES, rest] if rest else [PIPES]  # a pipe's name may contain anything
        elif path[1:2] == ":":
            if not _DRIVE.match(path):
                raise _windows_error(errno.EINVAL, _INVALID_NAME, path)
            root, rest = path[:2].upper(), path[2:]
        else:
            root, rest = "C:", path
        if _FORBIDDEN.search(rest):
            raise _windows_error(errno.EINVAL, _INVALID_NAME, path)
        for name in rest.split("\\"):
            if name == "..":
                if names:
                    names.pop()
            elif name := name.rstrip(". "):  # Windows strips them; this also removes "."
                names.append(name)
        if (
            names
            and names[-1][0] in _DEVICE_LETTERS
            and not literal
            and (device := device_name(names[-1]))
        ):
            if device == "nul":
                return [NUL]
            raise self.error(errno.ENOENT, path)
        return [root, *names]

    def parent(self, path: str) -> str:
        return ntpath.dirname(path)

    def join(self, directory: str, name: str) -> str:
        return f"{directory}\\{name}"

    def fold(self, names: list[str]) -> list[str]:
        return [name.lower() for name in names]

    def follow(self, directory: list[str], target: str) -> list[str]:
        target = target.replace("/", "\\")
        if target.startswith("\\\\") or target[1:2] == ":":
            return self.split(target)
        if target.startswith("\\"):
            return self.split(directory[0] + target)
        return self.split("\\".join([*directory, target]))

    def error(self, code: int, path: str, *, parent: bool = False) -> OSError:
        if code in (errno.EROFS, errno.EPERM):  # Windows does not distinguish them
            code = errno.EACCES
        text = _WINDOWS[code]
        if parent and code == errno.ENOENT:
            text = (
                _BAD_NETWORK_PATH if path.replace("/", "\\").startswith("\\\\") else _PATH_NOT_FOUND
            )
        return _windows_error(code, text, path)

    def blocks(self, data: Data) -> int:
        return content_length(data)

    def stat(self, node: Inode) -> Stat:
        kind = KIND[node.mode & FORMAT_MASK]
        mode = 0o777 if kind in ("directory", "symlink") else 0o666
        if not node.mode & 0o200:
            mode &= 0o555
        return Stat(kind, mode, 0, 0, content_length(node.data), node.mtime)

    def may(self, user: FileUser, node: Inode, wanted: int) -> bool:
        rights = _RIGHTS.get(wanted & (READ | WRITE), security.READ_DATA | security.WRITE_DATA)
        return wanted == SEARCH or security.allowed_access(
            node.owner, type(node.data) is dict, user.sids, rights
        )

    def owns(self, user: FileUser, node: Inode) -> bool:
        """Whether the user may change its attributes."""
        return security.allowed_access(
            node.owner, type(node.data) is dict, user.sids, security.WRITE_ATTRIBUTES
        )

    def may_remove(self, user: FileUser, parent: Inode, node: Inode) -> bool:
        return security.allowed_access(
            node.owner, type(node.data) is dict, user.sids, security.DELETE
        ) or security.allowed_access(parent.owner, True, user.sids, security.DELETE_CHILD)

    def aliased(self, entries: dict[str, Inode], key: str) -> str | None:
        """By its short name, `progra~1`."""
        if "~" not in key or len(entries) > _SHORT_NAMED:
            return None
        return next(
            (real for real, short in short_names(entries).items() if short.lower() == key), None
        )

    def created_by(self, user: FileUser | None, parent: Inode) -> int:
        if user is None:
            return (
                parent.owner
                if parent.owner <= security.OPEN
                else security.inherited_aces(parent.owner)
            )
        return security.inherited_aces(parent.owner, user.sid)

    def changed_mode(self, node: Inode, mode: int) -> int:
        return (node.mode & ~0o200) | (mode & 0o200)

    def write_protected(self, node: Inode) -> bool:
        return not node.mode & 0o200

    def check_name(self, name: str, path: str) -> None:
        if len(name) > 255:
            raise self.error(errno.ENAMETOOLONG, path)
        if device_name(name) and not path.startswith("\\\\?\\"):
            raise self.error(errno.ENOENT, path)

    def check_replace(self, node: Inode, there: Inode, path: str) -> None:
        if type(there.data) in (dict, str):  # also a link to a directory
            raise self.error(errno.EACCES, path)

    def may_add_root(self, name: str) -> bool:
        return False  # mkdir does not create drives and shares

    def is_remote(self, root: str) -> bool:
        return root.startswith("\\\\") and root != PIPES


def device_name(name: str) -> str:
    """The reserved device name, in any directory and with any extension: `con`, `nul.txt`. "" for
    other names.
    """
    if len(name) > 2 and name[0] in _DEVICE_LETTERS:
        stem = name.partition(".")[0].rstrip(" ").lower()
        return stem if stem in _DEVICES else ""
    return ""


_SHORT_NAMED: Final = 5000  # the maximum of files in a directory with short names
_SHORT_KEPT = lazy_pattern(r"[A-Z0-9!#$%&'()@^_`{}~-]")


def short_names(entries: dict[str, Inode]) -> dict[str, str]:
    """The short names (8.3) of a directory's entries, by key, as NTFS generates them. Entries that
    need none have none.
    """
    out: dict[str, str] = {}
    taken: dict[str, int] = {}
    for key, node in entries.items():
        name = node.called(key)
        stem, dot, extension = name.rpartition(".") if "." in name.lstrip(".") else (name, "", "")
        if len(stem) <= 8 and len(extension) <= 3 and " " not in name and "." not in stem:
            continue
        base = "".join(_SHORT_KEPT.findall(stem.upper()))[:6] or "_"
        end = dot + "".join(_SHORT_KEPT.findall(extension.upper()))[:3] if extension else ""
        number = taken[base + end] = taken.get(base + end, 0) + 1
        out[key] = f"{base[: 7 - len(str(number))]}~{number}{end}"
    return out


POSIX: Final = PosixStyle()
WINDOWS: Final = WindowsStyle()
