"""Machines whose files are a real directory."""

from __future__ import annotations

from pathlib import Path

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
