"""Access control lists, attributes, short names and devices of Windows' files."""

from __future__ import annotations

import pytest

from transom.machines import ntfs, security
from transom.machines.files import FileTree
from transom.machines.inodes import DiskQuota
from transom.machines.saving import SavedContents, capture_tree, restore_tree
from transom.machines.security import (
    ADMINISTRATORS,
    FULL,
    READ_EXECUTE,
    USERS,
    Ace,
    SecurityDescriptor,
)
from transom.machines.styles import WINDOWS, FileUser
from transom.machines.trees import TreeFolder, TreeOpenFolder, make_tree
from transom.machines.windows.accounts import ADMINISTRATOR, USER

BASE = make_tree(
    WINDOWS,
    {
        r"C:\Program Files": TreeFolder(),
        r"C:\Windows\System32": TreeFolder(),
        "C:\\": TreeOpenFolder(),
    },
)


def disk() -> FileTree:
    return FileTree(WINDOWS, BASE, DiskQuota(1 << 30), lambda: 1.0)


def seen_by(files: FileTree, user: object) -> FileTree:
    account = {"user": USER, "administrator": ADMINISTRATOR}[str(user)]
    owner = ADMINISTRATORS if account.administrator else account.sid
    return files.as_user(FileUser(1, sids=account.sids, sid=owner))


def test_a_denial_counts_before_a_grant_and_for_administrators_too() -> None:
    files = disk()
    files.write(r"C:\a.txt", b"x")
    for name, sid in (("user", USER.sid), ("administrator", ADMINISTRATORS)):
        found = ntfs.security_descriptor(files, r"C:\a.txt")
        ntfs.set_security_descriptor(
            files,
            r"C:\a.txt",
            found._replace(aces=(Ace(sid, security.READ_DATA, deny=True), *found.aces)),
        )
        with pytest.raises(PermissionError, match="Access is denied"):
            seen_by(files, name).read(r"C:\a.txt")
    assert files.read(r"C:\a.txt") == b"x"  # the system itself


def test_lists_are_inherited_by_what_is_there_and_by_what_comes_later() -> None:
    files = disk()
    files.mkdir(r"C:\d\e")
    files.write(r"C:\d\e\old.txt", b"")
    own = SecurityDescriptor(ADMINISTRATORS, (Ace(ADMINISTRATORS, FULL, False, 3),), True)
    ntfs.set_security_descriptor(files, r"C:\d", own)
    files.write(r"C:\d\e\new.txt", b"")
    for name in ("old.txt", "new.txt"):
        found = ntfs.security_descriptor(files, rf"C:\d\e\{name}")
        assert [(ace.sid, ace.inherited, ace.flags) for ace in found.aces] == [
            (ADMINISTRATORS, True, 0)
        ]
        with pytest.raises(PermissionError):
            seen_by(files, "user").read(rf"C:\d\e\{name}")
    with pytest.raises(PermissionError):
        seen_by(files, "user").listdir(r"C:\d")
    assert seen_by(files, "administrator").listdir(r"C:\d") == ["e"]


def test_the_owner_may_change_the_list_and_an_ordinary_user_of_others_files_may_not() -> None:
    files = disk()
    user = seen_by(files, "user")
    user.write(r"C:\mine.txt", b"")
    nothing = ntfs.security_descriptor(user, r"C:\mine.txt")._replace(aces=(), protected=True)
    ntfs.set_security_descriptor(user, r"C:\mine.txt", nothing)
    with pytest.raises(PermissionError):
        user.read(r"C:\mine.txt")
    ntfs.set_security_descriptor(
        user, r"C:\mine.txt", nothing._replace(aces=(Ace(USERS, READ_EXECUTE),))
    )
    assert user.read(r"C:\mine.txt") == b""
    with pytest.raises(PermissionError):
        ntfs.take_ownership(user, r"C:\Windows", USER.sid)
    ntfs.take_ownership(seen_by(files, "administrator"), r"C:\mine.txt", ADMINISTRATOR.sid)
    assert ntfs.security_descriptor(files, r"C:\mine.txt").owner == ADMINISTRATOR.sid


def test_lists_and_attributes_are_saved_with_the_disk() -> None:
    files = disk()
    files.write(r"C:\a.txt", b"x")
    ntfs.set_file_attributes(files, r"C:\a.txt", "HR")
    wanted = SecurityDescriptor(USER.sid, (Ace(USER.sid, FULL),), True)
    ntfs.set_security_descriptor(files, r"C:\a.txt", wanted)
    contents = SavedContents()
    rows = capture_tree(files._top.node, BASE, contents)
    again = FileTree(
        WINDOWS, restore_tree(rows, BASE, contents, WINDOWS), DiskQuota(1 << 30), lambda: 2.0
    )
    assert ntfs.security_descriptor(again, r"C:\a.txt") == wanted
    assert ntfs.file_attributes(again, r"C:\a.txt") == "AHR"


@pytest.mark.parametrize("name", ["con", "COM1", "nul.txt", "aux.log", "lpt9"])
def test_devices_are_not_files(name: str) -> None:
    files = disk()
    if not name.startswith("nul"):
        with pytest.raises(FileNotFoundError):
            files.write(rf"C:\{name}", b"x")
    else:
        files.write(rf"C:\{name}", b"x")
    assert files.listdir("C:\\") == ["Program Files", "Windows"]
    files.write(rf"\\?\C:\{name}", b"x")
    assert files.read(rf"\\?\C:\{name}") == b"x"


def test_short_names_lead_to_the_same_files() -> None:
    files = disk()
    files.write(r"C:\PROGRA~1\x.txt", b"1")
    assert files.read(r"C:\Program Files\x.txt") == b"1"
    files.mkdir(r"C:\Program Data Two")
    assert ntfs.short_name(files, r"C:\Program Data Two") == "PROGRA~2"
    assert ntfs.real_name(files, r"C:\progra~1") == "Program Files"
    assert not files.exists(r"C:\progra~9")


def test_a_list_has_a_bounded_length() -> None:
    files = disk()
    files.write(r"C:\a.txt", b"")
    long = tuple(Ace(f"S-1-5-21-{number}", FULL) for number in range(security.MAX_ENTRIES + 1))
    with pytest.raises(OSError, match="parameter is incorrect"):
        ntfs.set_security_descriptor(files, r"C:\a.txt", SecurityDescriptor(USER.sid, long))
