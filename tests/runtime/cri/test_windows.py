"""The client as a Windows program: a Python for Windows under Wine, and a real containerd behind a
named pipe.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.cri import onwindows
from tests.runtime.cri.containerd import Containerd
from tests.runtime.cri.npipe import NamedPipe
from tests.runtime.wine import winpython
from tests.runtime.wine.winpython import WindowsPython

# a Python for Windows may have to be fetched, and a Windows to be made
pytestmark = pytest.mark.timeout(300)

_PARTS = ["lives", "commands", "attachments", "ports", "others", "absence"]


@pytest.fixture(scope="module")
def windows(
    containerd: Containerd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WindowsPython]:
    """In containerd's network, where its streaming server listens on the loopback."""
    cache = tmp_path_factory.getbasetemp().parent / "transom-wine"
    with winpython.running(cache, ("nsenter", f"--net=/proc/{containerd.init}/ns/net")) as made:
        yield made


def test_containerd_over_a_named_pipe(
    windows: WindowsPython, containerd: Containerd, tmp_path: Path
) -> None:
    pipe = NamedPipe(windows, r"\\.\pipe\containerd-containerd", containerd.folder / "c.sock")
    doing = {"away": pipe.close, "back": pipe.open}
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    program = windows.start_script(Path(onwindows.__file__), str(tmp_path), **streams)
    assert program.stdin is not None and program.stdout is not None
    printed = []
    for line in program.stdout:
        word = line.decode().rstrip()
        if word in doing:
            doing[word]()
            program.stdin.write(b"done\n")
            program.stdin.flush()
        else:
            printed.append(word)
    pipe.close()
    assert program.wait() == 0, "\n".join(printed)
    assert printed[0].startswith("containerd 1.")
    assert [word for word in printed[1:] if " " not in word] == _PARTS
    assert pipe.clients == 6  # the node's, four others, and the node's again
