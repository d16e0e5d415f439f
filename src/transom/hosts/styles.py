"""How an operating system writes paths, words errors and shows files: the part of a file system that is not the tree.

A path becomes a list of names; a drive, a share or the folder of pipes is the first name of a Windows path. `fold` makes the
keys under which directories keep those names.
"""

from __future__ import annotations

import errno
import ntpath
import os
import posixpath
import re
from typing import Final, NamedTuple, Protocol

from transom.hosts.api import Stat
from transom.hosts.nodes import FORMAT_MASK, KIND, Data, NamedNode, Node, length

PAGE: Final = 4096
PIPES: Final = "\\\\.\\pipe"
NUL: Final = "NUL"  # the same device in every directory

READ, WRITE, SEARCH = 4, 2, 1


class User(NamedTuple):
    """Who asks, when it is not somebody who may do everything. On Windows only that it is somebody counts."""

    uid: int
    gid: int = 0
    groups: frozenset[int] = frozenset()


class Style(Protocol):
    node: type[Node]
    has_owners: bool

    def split(self, path: str) -> list[str]: ...
    def parent(self, path: str) -> str: ...
    def join(self, directory: str, name: str) -> str: ...
    def fold(self, names: list[str]) -> list[str]: ...
    def follow(self, directory: list[str], target: str) -> list[str]:
        """Where a link in a directory leads."""

    def error(self, code: int, path: str, *, parent: bool = False) -> OSError:
        """`parent`: it is a directory on the way that is missing."""

    def blocks(self, data: Data) -> int:
        """Bytes on the disk."""

    def stat(self, node: Node) -> Stat: ...
    def may(self, user: User, node: Node, wanted: int) -> bool: ...
    def owns(self, user: User, node: Node) -> bool: ...
    def created_by(self, user: User | None, parent: Node) -> int:
        """The owner of a new node."""

    def changed_mode(self, node: Node, mode: int) -> int: ...
    def write_protected(self, node: Node) -> bool:
        """Even for those who may do everything."""

    def check_name(self, name: str, path: str) -> None: ...
    def check_replace(self, node: Node, there: Node, path: str) -> None:
        """`node` may be renamed to where `there` is."""

    def may_add_root(self, name: str) -> bool:
        """Whether the first name of a path can be a new one."""


class Posix:
    node = Node
    has_owners = True

    def split(self, path: str) -> list[str]:
        names = path.split("/")
        if not names[0]:
            del names[0]
        if "" in names or "." in names:  # few paths have any
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
            return 0 if len(data) < 60 else PAGE  # a short target lives in the inode
        return -(-length(data) // PAGE) * PAGE

    def stat(self, node: Node) -> Stat:
        data = node.data
        if type(data) is dict:
            size = PAGE
        else:
            size = len(data.encode()) if type(data) is str else length(data)
        uid, gid = node.owner >> 32, node.owner & 0xFFFFFFFF
        return Stat(KIND[node.mode & FORMAT_MASK], node.mode & 0o7777, uid, gid, size, node.mtime)

    def may(self, user: User, node: Node, wanted: int) -> bool:
        uid, gid = node.owner >> 32, node.owner & 0xFFFFFFFF
        if uid == user.uid:
            bits = node.mode >> 6
        elif gid == user.gid or gid in user.groups:
            bits = node.mode >> 3
        else:
            bits = node.mode
        return bits & wanted == wanted

    def owns(self, user: User, node: Node) -> bool:
        return node.owner >> 32 == user.uid

    def created_by(self, user: User | None, parent: Node) -> int:
        uid, gid = (user.uid, user.gid) if user is not None else (0, 0)
        if parent.mode & 0o2000:  # set-group-id: how a volume's group reaches the files in it
            gid = parent.owner & 0xFFFFFFFF
        return uid << 32 | gid

    def changed_mode(self, node: Node, mode: int) -> int:
        return (node.mode & ~0o7777) | (mode & 0o7777)

    def write_protected(self, node: Node) -> bool:
        return False

    def check_name(self, name: str, path: str) -> None:
        if len(name) > 85 and len(name.encode()) > 255:
            raise self.error(errno.ENAMETOOLONG, path)

    def check_replace(self, node: Node, there: Node, path: str) -> None:
        if type(there.data) is dict:
            if type(node.data) is not dict:
                raise self.error(errno.EISDIR, path)
            if there.data:
                raise self.error(errno.ENOTEMPTY, path)
        elif type(node.data) is dict:
            raise self.error(errno.ENOTDIR, path)

    def may_add_root(self, name: str) -> bool:
        return True


# Windows' code and text for each errno: https://learn.microsoft.com/windows/win32/debug/system-error-codes
_WINDOWS: dict[int, tuple[int, str]] = {
    errno.ENOENT: (2, "The system cannot find the file specified."),
    errno.EACCES: (5, "Access is denied."),
    errno.EISDIR: (5, "Access is denied."),
    errno.EXDEV: (17, "The system cannot move the file to a different disk drive."),
    errno.EBUSY: (32, "The process cannot access the file because it is being used by another process."),
    errno.ENOSPC: (112, "There is not enough space on the disk."),
    errno.EINVAL: (87, "The parameter is incorrect."),
    errno.ENOTEMPTY: (145, "The directory is not empty."),
    errno.EEXIST: (183, "Cannot create a file when that file already exists."),
    errno.ENAMETOOLONG: (206, "The filename or extension is too long."),
    errno.ENOTDIR: (267, "The directory name is invalid."),
    errno.ELOOP: (1921, "The name of the file cannot be resolved by the system."),
    errno.ENXIO: (1920, "The file cannot be accessed by the system."),
    errno.ENOTSUP: (0x20000000, "not supported by windows"),  # what Go's library says, for the system has no such call
}
_PATH_NOT_FOUND = (3, "The system cannot find the path specified.")
_BAD_NETWORK_PATH = (53, "The network path was not found.")
_INVALID_NAME = (123, "The filename, directory name, or volume label syntax is incorrect.")
_FORBIDDEN = re.compile(r'[<>:"|?*\x00-\x1f]')
_DRIVE = re.compile(r"[A-Za-z]:")


def _windows_error(code: int, text: tuple[int, str], path: str) -> OSError:
    failure = OSError(code, text[1], path)
    failure.__dict__["winerror"] = text[0]  # as on Windows itself; OSError has no such field elsewhere
    return failure


class Windows:
    """Names keep their case, which does not count. No modes and owners: a file is read-only or not, and an ordinary user may
    change what is in a folder of owner 1 only (volumes, the user's own profile), as the access lists of a container say."""

    node: type[Node] = NamedNode
    has_owners = False

    def split(self, path: str) -> list[str]:
        path = path.replace("/", "\\")
        if path.startswith("\\\\?\\"):
            path = "\\\\" + path[8:] if path[4:8].upper() == "UNC\\" else path[4:]
        names: list[str] = []
        if path.startswith("\\\\"):
            server, _, rest = path[2:].partition("\\")
            share, _, rest = rest.partition("\\")
            root = f"\\\\{server}\\{share}"
            if root.lower() == PIPES:
                return [PIPES, rest] if rest else [PIPES]  # a pipe's name may have anything in it
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
            elif name := name.rstrip(". "):  # Windows takes them off; "." goes the same way
                names.append(name)
        if names and names[-1].lower() == "nul":
            return [NUL]
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
        if code in (errno.EROFS, errno.EPERM):  # neither is told apart
            code = errno.EACCES
        text = _WINDOWS[code]
        if parent and code == errno.ENOENT:
            text = _BAD_NETWORK_PATH if path.replace("/", "\\").startswith("\\\\") else _PATH_NOT_FOUND
        return _windows_error(code, text, path)

    def blocks(self, data: Data) -> int:
        return length(data)

    def stat(self, node: Node) -> Stat:
        kind = KIND[node.mode & FORMAT_MASK]
        mode = 0o777 if kind in ("directory", "symlink") else 0o666
        if not node.mode & 0o200:
            mode &= 0o555
        return Stat(kind, mode, 0, 0, length(node.data), node.mtime)

    def may(self, user: User, node: Node, wanted: int) -> bool:
        return not wanted & WRITE or node.owner == 1

    def owns(self, user: User, node: Node) -> bool:
        return node.owner == 1

    def created_by(self, user: User | None, parent: Node) -> int:
        return parent.owner

    def changed_mode(self, node: Node, mode: int) -> int:
        return (node.mode & ~0o200) | (mode & 0o200)

    def write_protected(self, node: Node) -> bool:
        return not node.mode & 0o200

    def check_name(self, name: str, path: str) -> None:
        if len(name) > 255:
            raise self.error(errno.ENAMETOOLONG, path)

    def check_replace(self, node: Node, there: Node, path: str) -> None:
        if type(there.data) in (dict, str):  # also a link to a directory
            raise self.error(errno.EACCES, path)

    def may_add_root(self, name: str) -> bool:
        return False  # drives and shares are not made by mkdir


POSIX: Final = Posix()
WINDOWS: Final = Windows()
