"""Windows-only file metadata: access control lists, attributes, short names, drives."""

from __future__ import annotations

import errno
from typing import Final

from transom.machines import security
from transom.machines.files import FileTree
from transom.machines.inodes import FROZEN, HIDDEN, NOT_ARCHIVE, SYSTEM, Inode
from transom.machines.listing import keep_listed
from transom.machines.security import SecurityDescriptor
from transom.machines.styles import short_names

_BITS: Final = {"R": 0o200, "A": NOT_ARCHIVE, "S": SYSTEM, "H": HIDDEN}
_SET_BITS: Final = "SH"  # their bit means "on"; the other bits mean "off"


def security_descriptor(files: FileTree, path: str) -> SecurityDescriptor:
    """The access control list, as it applies to this kind of file."""
    node = files._there(path)
    _demand(files, node, security.READ_CONTROL, path)
    found = security.descriptor_of(node.owner)
    return found._replace(aces=found.effective(type(node.data) is dict))


def set_security_descriptor(files: FileTree, path: str, wanted: SecurityDescriptor) -> None:
    """Sets a list, which everything below inherits."""
    place = files._walk(path)
    node = place.node
    if node is None:
        raise files._style.error(errno.ENOENT, path)
    if place.at.read_only:
        raise files._style.error(errno.EROFS, path)
    if len(wanted.aces) > security.MAX_ENTRIES:
        raise files._style.error(errno.EINVAL, path)
    before = security.descriptor_of(node.owner)
    if before.owner != wanted.owner and not _is_administrator(files):
        _demand(files, node, security.WRITE_OWNER, path)
    if (
        before.effective(type(node.data) is dict) != wanted.aces
        or before.protected != wanted.protected
    ):
        _demand(files, node, security.WRITE_DAC, path)
    if before.protected and not wanted.protected and place.parent is not None:
        wanted = security.reinherited(wanted, security.descriptor_of(place.parent.owner))
    node = files._own(place, node, free=True)
    node.owner = security.number_of(wanted._replace(aces=security.sorted_aces(wanted.aces)))
    _pass_on(node)


def take_ownership(files: FileTree, path: str, sid: str) -> None:
    """Changes the owner and keeps the list. Requires the right to, which administrators always
    have.
    """
    place = files._walk(path)
    if place.node is None:
        raise files._style.error(errno.ENOENT, path)
    if not _is_administrator(files):
        _demand(files, place.node, security.WRITE_OWNER, path)
    node = files._own(place, place.node, free=True)
    node.owner = security.number_of(security.descriptor_of(node.owner)._replace(owner=sid))


def _pass_on(node: Inode) -> None:
    if type(node.data) is not dict:
        return
    for key, child in tuple(node.data.items()):
        after = security.reinherited_number(child.owner, node.owner)
        if after != child.owner:
            if child.mode & FROZEN:
                keep_listed(node)
                child = node.data[key] = child.copy()
            child.owner = after
            _pass_on(child)


def may_access(files: FileTree, path: str, rights: int) -> bool:
    user, node = files._user, files._there(path)
    return user is None or security.allowed_access(
        node.owner, type(node.data) is dict, user.sids, rights
    )


def _is_administrator(files: FileTree) -> bool:
    """Administrators may take ownership of everything."""
    return files._user is None or security.ADMINISTRATORS in files._user.sids


def _demand(files: FileTree, node: Inode, rights: int, path: str) -> None:
    user = files._user
    if user is not None and not security.allowed_access(
        node.owner, type(node.data) is dict, user.sids, rights
    ):
        raise files._style.error(errno.EACCES, path)


def file_attributes(files: FileTree, path: str, *, follow: bool = True) -> str:
    """The attribute letters that are set, in the order of attrib: A, S, H, R."""
    node = files._there(path, follow=follow)
    archive = "" if node.mode & NOT_ARCHIVE or type(node.data) is dict else "A"
    marks = "".join(letter for letter in "SH" if node.mode & _BITS[letter])
    return archive + marks + ("" if node.mode & 0o200 else "R")


def set_file_attributes(files: FileTree, path: str, on: str = "", off: str = "") -> None:
    node = files._changeable(files._walk(path))
    for letters, wanted in ((on, True), (off, False)):
        for letter in letters:
            bit = _BITS[letter]
            node.mode = node.mode | bit if wanted == (letter in _SET_BITS) else node.mode & ~bit


def short_name(files: FileTree, path: str) -> str:
    """The 8.3 name of a file; "" where its own name is short enough."""
    place = files._walk(path, follow=False)
    if place.parent is None or type(place.parent.data) is not dict or len(place.keys) < 2:
        return ""
    return short_names(place.parent.data).get(place.keys[-1], "")


def real_name(files: FileTree, path: str) -> str:
    """The last name of a path as spelled in its directory."""
    place = files._walk(path, follow=False)
    if place.node is None:
        raise files._style.error(errno.ENOENT, path)
    if place.parent is None or type(place.parent.data) is not dict or not place.keys:
        return place.node.called(place.keys[-1] if place.keys else "")
    # what is mounted there has a name of its own
    return place.parent.data[place.keys[-1]].called(place.keys[-1])


def hard_links(files: FileTree, path: str) -> list[str]:
    """The paths of all names of a file, from the root of its volume."""
    place = files._walk(path, follow=False)
    if place.node is None:
        raise files._style.error(errno.ENOENT, path)
    wanted, found = place.node.file, list[str]()
    root = files._walk(f"{place.keys[0]}\\").node
    todo = [("", root)] if root is not None else []
    while todo:
        above, node = todo.pop()
        for key, child in node.data.items() if type(node.data) is dict else ():
            own = f"{above}\\{child.called(key)}"
            if child.file is wanted:
                found.append(own)
            elif type(child.data) is dict:
                todo.append((own, child))
    return sorted(found)


def drive_letters(files: FileTree) -> list[str]:
    """`C:`, `D:`; not the directories of shares and pipes."""
    files._walk("C:\\")  # attaches pending mounts first
    entries = files._top.node.data
    names = [node.called(key) for key, node in entries.items()] if type(entries) is dict else []
    return sorted(name for name in names if len(name) == 2 and name[1] == ":")
