"""Files of a node that a pod with a hostPath can replace, read on the event loop of everything."""

from __future__ import annotations

import ast
import errno
from pathlib import Path

import pytest

import transom
from transom.machines.realfiles import RealFiles
from transom.machines.smallfiles import LARGEST, read_small_file

ROOT = Path(transom.__file__).parent
NODE_COMPONENTS = ("kubelet", "network", "node", "proxy", "runtime/native", "runtime/oci")
# Log files, in pieces or in a thread.
WHOLE_FILES = {"kubelet/server/hostlogs.py", "kubelet/logrotate.py"}


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
