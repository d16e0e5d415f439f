"""mount and umount on a simulated Linux machine: bind mounts, tmpfs and SMB shares of the emulated
cloud.
"""

from __future__ import annotations

import errno
import posixpath
from typing import Final

from transom.userland.api import NodeAccess
from transom.userland.files import error_text
from transom.userland.posix.commands.options import parse_size
from transom.userland.process import Process

_FAILED: Final = 32  # "mount failure"
_HALF_OF_MEMORY: Final = 2


def is_mount(node: NodeAccess, path: str) -> bool:
    return node.mounts.exists(path) and node.mounts.is_mount(path)


def _parse(words: list[str]) -> tuple[str, dict[str, str], list[str]]:
    """The file system type, the options and the operands."""
    kind, options, operands = "", dict[str, str](), list[str]()
    rest = iter(words)
    for word in rest:
        if word in ("-t", "--types"):
            kind = next(rest, "")
        elif word.startswith("-t"):
            kind = word[2:]
        elif word in ("-o", "--options") or word.startswith("-o"):
            for one in (next(rest, "") if word in ("-o", "--options") else word[2:]).split(","):
                key, _, value = one.partition("=")
                options[key] = value
        elif word in ("-B", "--bind", "--rbind", "-r", "--read-only"):
            options["ro" if word in ("-r", "--read-only") else "bind"] = ""
        elif not word.startswith("-"):
            operands.append(word)
    return kind, options, operands


def mount_on_node(process: Process, node: NodeAccess) -> int:
    kind, options, operands = _parse(process.argv[1:])
    if len(operands) != 2:
        process.complain("mount: bad usage\nTry 'mount --help' for more information.")
        return 1
    source, target = operands[0], process.files.absolute(operands[1])
    files = node.mounts
    try:
        if not files.exists(target):
            process.complain(f"mount: {target}: mount point does not exist.")
            return _FAILED
        _mount(node, process.context.platform.memory_limit, kind, source, target, options)
    except OSError as error:
        if kind in ("cifs", "smb3"):
            process.complain(
                f"mount error({error.errno}): {error.strerror}\nRefer to the mount.cifs(8) "
                "manual page"
            )
        elif error.errno == errno.ENODEV:
            process.complain(f"mount: {target}: unknown filesystem type '{kind}'.")
        elif error.errno == errno.ENOENT:
            process.complain(f"mount: {target}: special device {source} does not exist.")
        else:
            process.complain(f"mount: {target}: {error_text(error)}.")
        return _FAILED
    return 0


def _tmpfs_size(text: str, memory: int) -> int:
    """`10m` or `25%`; half of the memory if it is not given. Raises OSError."""
    if not text:
        return memory // _HALF_OF_MEMORY
    try:
        return memory * int(text[:-1]) // 100 if text.endswith("%") else parse_size(text.upper())
    except ValueError:
        raise OSError(errno.EINVAL, "wrong fs type, bad option, bad superblock") from None


def _mount(
    node: NodeAccess, memory: int, kind: str, source: str, target: str, options: dict[str, str]
) -> None:
    files = node.mounts
    read_only = "ro" in options
    if "bind" in options or "rbind" in options:
        files.bind_mount(posixpath.normpath(source), target, read_only)
    elif kind == "tmpfs" or source in ("tmpfs",):
        files.mount_tmpfs(target, _tmpfs_size(options.get("size", ""), memory))
    elif kind in ("cifs", "smb3"):
        if node.storage is None:
            raise OSError(errno.EHOSTUNREACH, "could not connect to the server", source)
        user = options.get("username", options.get("user", "guest"))
        password = options.get("password", options.get("pass", ""))
        node.storage.mount_share(source, target, user, password, read_only=read_only)
    elif kind in ("", "auto", "ext2", "ext3", "ext4", "xfs", "nfs"):
        raise OSError(errno.ENOENT, "No such file or directory", source)
    else:
        raise OSError(errno.ENODEV, "No such device", source)


def unmount_on_node(process: Process, node: NodeAccess) -> int:
    targets = [
        process.files.absolute(word) for word in process.argv[1:] if not word.startswith("-")
    ]
    code = 0
    for target in targets:
        if not node.mounts.exists(target):
            process.complain(f"umount: {target}: no mount point specified.")
            code = 1
        elif not is_mount(node, target):
            process.complain(f"umount: {target}: not mounted.")
            code = _FAILED
        else:
            node.mounts.unmount(target)
    return code
