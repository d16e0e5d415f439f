"""Changed copies of Wine's files."""

from __future__ import annotations

import pytest

from transom.machines.windows.accounts import ADMINISTRATOR, SYSTEM, USER, WindowsUser
from transom.runtime.wine import changes, helpers, installation
from transom.runtime.wine.portable_executable import PortableExecutable


def _installed(name: str) -> bytes:
    found = installation.find_wine()
    if found is None:
        pytest.skip("Wine is not installed")
    return (found.windows_libraries / name).read_bytes()


def _filter() -> bytes:
    return (helpers.BUILT / "hidevars.dll").read_bytes()


def test_sids_in_memory() -> None:
    assert changes.sid_bytes("S-1-5-32-544").hex() == "01020000000000052000000020020000"
    assert changes.sid_bytes("S-1-1-0").hex() == "010100000000000100000000"


@pytest.mark.parametrize("name", ["kernelbase.dll", "advapi32.dll", "cmd.exe"])
def test_this_wine_can_be_changed(name: str) -> None:
    content = _installed(name)
    for step in changes.file_changes(_filter())[name]:
        assert step(content) not in (None, content)


def test_the_filter_is_reached_by_all_names_of_the_functions() -> None:
    before = PortableExecutable(_installed("kernelbase.dll"))
    changed = changes.hide_variables(_filter(), bytes(before.content))
    assert changed is not None
    after = PortableExecutable(changed)
    slots = {name: changed[slot : slot + 4] for name, slot in after.exports().items()}
    old = {name: bytes(before.content[slot : slot + 4]) for name, slot in before.exports().items()}
    moved = {name for name in slots if slots[name] != old[name]}
    names = {"GetEnvironmentStrings", "GetEnvironmentStringsA", "GetEnvironmentStringsW"}
    assert moved == names & set(slots)


@pytest.mark.parametrize("content", [b"", b"MZ", bytes(4096), b"\x7fELF" + bytes(4096)])
def test_other_files_stay_as_they_are(content: bytes) -> None:
    for steps in changes.file_changes(_filter()).values():
        assert changes.apply_file_changes(content, steps) is None
    assert changes.server_for(content, USER) is None


def test_a_server_has_one_account() -> None:
    old = changes.sid_bytes("S-1-5-21-0-0-0-1000")
    server = b"begin" + old + b"end"
    for user in (ADMINISTRATOR, USER, SYSTEM):
        made = changes.server_for(server, user)
        assert made is not None and len(made) == len(server)
        assert changes.sid_bytes(user.sid) in made and old not in made
    local = WindowsUser("bob", "WEB", "S-1-5-21-1-2-3-1000")
    assert changes.server_for(server, local) is None
    assert changes.server_for(server + old, USER) is None
