"""Files of a node that a pod with a hostPath can replace, read on the event loop of everything."""

from __future__ import annotations

import ast
import errno
from pathlib import Path

import pytest

import transom
from transom.machines.api import Files
from transom.machines.files import FileTree
from transom.machines.inodes import DiskQuota
from transom.machines.realfiles import RealFiles
from transom.machines.smallfiles import (
    LARGEST,
    MOST_NAMES,
    list_small_directory,
    read_small_file,
)
from transom.machines.styles import POSIX
from transom.machines.trees import blank_tree
from transom.network.cni.config import read_config_files

ROOT = Path(transom.__file__).parent
NODE_COMPONENTS = ("kubelet", "network", "node", "proxy", "runtime/native", "runtime/oci")
# Log files, in a thread.
WHOLE_FILES = {"kubelet/logrotate.py"}


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    files = RealFiles(tmp_path)
    files.write("/conf", b"x" * LARGEST)
    assert len(read_small_file(files, "/conf")) == LARGEST
    with (tmp_path / "conf").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError) as problem:
        read_small_file(files, "/conf")
    assert problem.value.errno == errno.EFBIG


def test_components_of_a_node_read_no_whole_file() -> None:
    """Of a node's files, by `read` without a size: a container decides how large they are."""
    found = []
    for folder in NODE_COMPONENTS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr == "read"
                    and ast.unparse(node.func.value).endswith("files")
                    and len(node.args) + len(node.keywords) < 3
                ):
                    found.append(str(path.relative_to(ROOT)))
    assert set(found) <= WHOLE_FILES


def test_components_of_a_node_list_no_whole_directory() -> None:
    """By `listdir`: a container decides how many files there are."""
    found = []
    for folder in NODE_COMPONENTS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr == "listdir"
                    and ast.unparse(node.func.value).endswith("files")
                ):
                    found.append(str(path.relative_to(ROOT)))
    assert not found


@pytest.mark.parametrize("real", [True, False])
def test_a_full_directory_is_listed_in_part(tmp_path: Path, real: bool) -> None:
    files: Files = (
        RealFiles(tmp_path)
        if real
        else FileTree(POSIX, blank_tree(POSIX), DiskQuota(1 << 30, 9000), float)
    )
    files.mkdir("/d")
    files.fill("/d", [(f"{number:05}.conf", b"{}", 0o644) for number in range(MOST_NAMES + 500)])
    some = list_small_directory(files, "/d")
    assert len(some) == MOST_NAMES and some == sorted(some)
    assert len(files.listdir("/d")) == MOST_NAMES + 500
    assert list_small_directory(files, "/d", 9000) == files.listdir("/d")
    assert len(read_config_files(files, "/d")) == 100
