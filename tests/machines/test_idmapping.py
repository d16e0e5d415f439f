"""What a machine can do with user namespaces is tried out, in processes of their own: the functions
fork.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can make user namespaces for others"
)
_HEADER = "import ctypes, os, sys\nfrom transom.machines import idmapping, mounting\n"
_TRY = """
try:
    idmapping.try_kernel_mounts(1 << 28, sys.argv[1])
except OSError as problem:
    print(problem.errno, problem.strerror)
else:
    print("works")
"""
_FAILED = "proc and sysfs cannot be mounted in a user namespace"


def run(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _HEADER + script, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where every user gets, unlike pytest's."""
    made = Path(f"/run/transom-test-{os.getpid()}")
    made.mkdir(mode=0o711)
    try:
        yield made
    finally:
        for inner in made.iterdir():
            inner.rmdir()
        made.rmdir()


def test_a_folder_that_other_users_cannot_enter(folder: Path) -> None:
    (folder / "inner").mkdir()
    assert run(_TRY, folder / "inner") == "works"
    folder.chmod(0o700)
    assert run(_TRY, folder / "inner") == f"13 {_FAILED}: Permission denied"
    assert mounts_below(folder) == []


def test_a_machine_that_is_a_container_with_hidden_paths(folder: Path) -> None:
    hide = """
assert ctypes.CDLL(None).unshare(0x00020000) == 0
mounting.mount_filesystem("none", "/", "", mounting.PRIVATE | mounting.RECURSIVE)
# Another proc, for example of a chroot, would show the paths.
for line in reversed(open("/proc/self/mounts").readlines()):
    where = line.split()[1]
    if "/proc" in where[1:]:
        mounting.unmount_filesystem(where)
mounting.mount_filesystem("tmpfs", "/proc/sys", "tmpfs")
"""
    assert run(hide + _TRY, folder) == f"1 {_FAILED}: Operation not permitted"


def test_which_file_systems_can_be_mapped(folder: Path) -> None:
    script = """
for kind in ("tmpfs", "ramfs"):
    mounting.mount_filesystem("none", sys.argv[1], kind)
    try:
        with idmapping.user_namespace(1 << 28) as path:
            source, namespace = (os.open(name, os.O_RDONLY) for name in (sys.argv[1], path))
            print(idmapping.can_map(source, namespace))
            os.close(source)
    finally:
        mounting.unmount_filesystem(sys.argv[1])
"""
    assert run(script, folder).split() == ["True", "False"]
    assert mounts_below(folder) == []


def mounts_below(folder: Path) -> list[str]:
    with open("/proc/self/mounts") as file:
        return [line for line in file if str(folder) in line]
