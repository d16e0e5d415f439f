"""The times of files: Windows keeps the creation apart from the last write; saving keeps all."""

from __future__ import annotations

import pytest
from tests.machines.test_saving import again

from transom.kit.clock import VirtualClock
from transom.machines.api import Files, FileTimes, Stat
from transom.machines.linux import LinuxHost
from transom.machines.windows.host import WindowsHost


def times(state: Stat) -> tuple[float, float, float]:
    return state.created, state.accessed, float(state.mtime)


def test_a_windows_file_keeps_its_creation_time_when_it_changes_moves_and_is_linked() -> None:
    clock = VirtualClock()
    files = WindowsHost("w", clock).files
    begin = clock.time()
    files.mkdir(r"C:\d")
    files.write(r"C:\d\f", b"1")
    clock.advance(60)
    files.append(r"C:\d\f", b"2")
    files.link(r"C:\d\f", r"C:\d\other")
    files.rename(r"C:\d\f", r"C:\d\g")
    assert times(files.stat(r"C:\d\g")) == (begin, begin + 60, begin + 60)
    clock.advance(60)
    files.write(r"C:\d\other", b"3")
    assert times(files.stat(r"C:\d\g")) == (begin, begin + 120, begin + 120)
    assert files.stat(r"C:\d").created == begin


def test_times_that_were_set_survive_a_restart() -> None:
    host = WindowsHost("w", VirtualClock())
    host.files.write(r"C:\f", b"1")
    host.files.set_times(r"C:\f", 3.0, created=1.0)
    host.files.set_times(r"C:\f", accessed=2.0)
    assert times(again(host).files.stat(r"C:\f")) == (1.0, 2.0, 3.0)


def test_times_of_a_read_only_file_cannot_be_set() -> None:
    files = WindowsHost("w", VirtualClock()).files
    files.write(r"C:\f", b"1")
    files.chmod(r"C:\f", 0o444)
    with pytest.raises(PermissionError):
        files.set_times(r"C:\f", 1.0)


def test_linux_files_have_one_time_until_another_one_is_set() -> None:
    clock = VirtualClock()
    files: Files = LinuxHost("l", clock).files
    files.write("/f", b"1")
    clock.advance(60)
    files.write("/f", b"2")
    assert not isinstance(files.stat("/f").mtime, FileTimes)
