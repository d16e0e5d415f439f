"""Machines whose files are a real directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from transom.kit.clock import RealClock
from transom.machines.realhost import RealLinuxHost, RealWindowsHost


def test_a_windows_machine_reports_its_commit_limit(tmp_path: Path) -> None:
    """Since 1.31 the kubelet evicts pods when little of it is left."""
    host = RealWindowsHost("win1", RealClock(), tmp_path / "win1")
    memory, hardware = host.memory(), host.hardware
    assert memory.commit_limit == hardware.memory + hardware.page_file > memory.usage
    host.destroy()


def test_linux_has_no_commit_limit(tmp_path: Path) -> None:
    host = RealLinuxHost("node1", RealClock(), tmp_path / "node1")
    assert host.memory().commit_limit == 0
    host.destroy()


@pytest.mark.parametrize("odd", ["pipe", "link", "folder"])
def test_odd_files_of_pods_do_not_prevent_the_boot(odd: str, tmp_path: Path) -> None:
    """Pods with a hostPath can write every file of their node."""
    RealLinuxHost("node1", RealClock(), tmp_path / "node1").files.close()
    path = tmp_path / "node1" / "etc" / "resolv.conf"
    path.unlink(missing_ok=True)
    if odd == "pipe":
        os.mkfifo(path)
    elif odd == "link":
        path.symlink_to("resolv.conf")
    else:
        path.mkdir()
    host = RealLinuxHost("node1", RealClock(), tmp_path / "node1")
    host.reboot()
    host.destroy()
