"""Which programs are started, with which arguments, and that the package starts none in another
way.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

import transom
from transom.kit.programs import call_program, run_program
from transom.kit.trust import (
    UntrustedProgram,
    check_program,
    find_program,
    search_path,
    spawn_program,
)

ROOT = Path(transom.__file__).parent


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "bin/program"
    path.parent.mkdir()
    path.write_text('#!/bin/sh\necho "$0 $*"\npwd\nenv\n')
    path.chmod(0o755)
    return path


def test_a_program_of_the_owner_runs_with_a_clean_environment(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "1")
    lines = run_program([str(program), "a", "b c"]).stdout.decode().splitlines()
    assert lines[:2] == [f"{program} a b c", "/"]
    assert not any(line.startswith("SECRET=") for line in lines) and "LANG=C.UTF-8" in lines
    code, output, errors = asyncio.run(call_program([str(program), "x"], input=b"", env={"A": "1"}))
    assert (code, errors) == (0, b"") and "A=1" in output.decode().splitlines()


def test_links_are_followed_and_checked(program: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to("bin")
    (tmp_path / "bin/link").symlink_to("../other/./program")
    assert check_program(str(tmp_path / "other/link")) == str(program)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels"):
        check_program(str(tmp_path / "loop"))
    with pytest.raises(UntrustedProgram, match="containers can write"):
        check_program(str(tmp_path / "other/link"), [str(tmp_path / "bin")])
    with pytest.raises(UntrustedProgram, match="containers can write"):
        check_program(str(program), [str(tmp_path / "other")])


@pytest.mark.parametrize(
    ("mode", "at"),
    [
        (0o757, "bin/program"),
        (0o775, "bin/program"),
        (0o777, "bin"),
        (0o775, "bin"),
        (0o644, "bin/program"),
    ],
)
def test_what_others_can_write_is_not_run(
    program: Path, tmp_path: Path, mode: int, at: str
) -> None:
    place = tmp_path / at
    if mode & 0o020:
        if os.geteuid() != 0:
            pytest.skip("needs root, to give a file to another group")
        os.chown(place, -1, 4242)
    place.chmod(mode)
    with pytest.raises(UntrustedProgram):
        run_program([str(program)])
    with pytest.raises(UntrustedProgram):
        asyncio.run(call_program([str(program)]))
    with pytest.raises(UntrustedProgram):
        spawn_program([str(program)], (), ())


@pytest.mark.parametrize("at", ["bin/program", "bin", "link"])
def test_what_belongs_to_others_is_not_run(program: Path, tmp_path: Path, at: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to change owners")
    (tmp_path / "link").symlink_to("bin")
    os.chown(tmp_path / at, 4242, 4242, follow_symlinks=False)
    with pytest.raises(UntrustedProgram, match="belongs to user 4242"):
        run_program([str(tmp_path / "link/program")])


def test_a_folder_with_the_sticky_bit_is_fine(program: Path) -> None:
    program.parent.chmod(0o1777)
    assert check_program(str(program)) == str(program)


@pytest.mark.parametrize("name", ["bin/program", "./program", "../program"])
def test_relative_paths_are_not_run(
    program: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(program.parent.parent)
    with pytest.raises(FileNotFoundError):
        run_program([name])
    monkeypatch.setenv("PATH", f".:bin::{program.parent}")
    assert search_path() == str(program.parent) and find_program("program") == str(program)
    monkeypatch.setenv("PATH", ".:bin")
    assert find_program("program") is None


def test_neither_directories_nor_devices_are_programs(tmp_path: Path) -> None:
    for path in (str(tmp_path), "/", "/dev/null"):
        with pytest.raises(UntrustedProgram):
            check_program(path)


async def test_a_program_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    path = tmp_path / "slow"
    path.write_text(f"#!/bin/sh\nsleep 60 & echo $! > {tmp_path}/pid\nwait\n")
    path.chmod(0o755)

    with pytest.raises(TimeoutError):
        await call_program([str(path)], seconds=0.5)
    pid = (tmp_path / "pid").read_text().strip()
    status = Path(f"/proc/{pid}/stat")
    assert not status.exists() or status.read_text().split()[2] == "Z"


def test_the_monitor_spawns_with_these_descriptors_only(tmp_path: Path, program: Path) -> None:
    program.write_text(f"#!/bin/sh\nls /proc/$$/fd > {tmp_path}/seen\nread line && echo $line\n")
    reader, writer = os.pipe()
    with (tmp_path / "open").open("w") as other, (tmp_path / "in").open("w+") as given:
        given.write("hello\n")
        given.seek(0)
        pid = spawn_program([str(program)], (given.fileno(), writer, writer), (signal.SIGPIPE,))
        assert os.waitpid(pid, 0)[1] == 0
        assert str(other.fileno()) not in (tmp_path / "seen").read_text().split()
    assert os.read(reader, 100) == b"hello\n"
    os.close(reader)
    os.close(writer)


def test_our_own_python_is_trusted() -> None:
    assert run_program([sys.executable, "-c", "print(1)"]).stdout == b"1\n"


# ---- nothing else starts programs ----

_STARTS = {
    "subprocess": {
        "run",
        "Popen",
        "call",
        "check_call",
        "check_output",
        "getoutput",
        "getstatusoutput",
    },
    "os": {
        "system",
        "popen",
        "posix_spawn",
        "posix_spawnp",
        "startfile",
        "fork",
        "forkpty",
        *(f"exec{end}" for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
        *(f"spawn{end}" for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
    },
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "pty": {"spawn", "fork"},
    "multiprocessing": {"Process", "Pool", "get_context"},
    "concurrent.futures": {"ProcessPoolExecutor"},
    "ctypes.util": {"find_library"},  # runs ldconfig and compilers
    "loop": {"subprocess_exec", "subprocess_shell"},
}
_ALLOWED = {
    ("kit/programs.py", "subprocess.run"),
    ("kit/programs.py", "asyncio.create_subprocess_exec"),
    ("kit/trust.py", "os.posix_spawn"),
    # The pause program, written by the runtime into a folder of its own, as the only thing in its
    # root directory.
    ("runtime/native/monitor/holder.py", "os.execve"),
    # The servers of a cluster with several, and etcd as found on the search path.
    ("cluster/ha/processes.py", "asyncio.create_subprocess_exec"),
    # This interpreter, for the cluster of a user's test.
    ("testing/process.py", "subprocess.Popen"),
    # Forks that go on with the same program.
    ("runtime/native/monitor/holder.py", "os.fork"),
    ("runtime/native/monitor/__main__.py", "os.fork"),
    ("cluster/daemon.py", "os.fork"),
    ("machines/idmapping.py", "os.fork"),
}


def _starts(path: Path) -> set[str]:
    """What in a file starts programs, whatever name it was imported by."""
    text, names, found = path.read_text(), dict[str, str](), set[str]()
    known = {f"{module}.{name}" for module, functions in _STARTS.items() for name in functions}
    all_last = {name.rpartition(".")[2] for name in known}
    last = all_last - {
        "run",
        "call",
        "fork",
        "spawn",
        "Process",
        "Pool",
        "system",
    }
    words = set(re.findall(r"\w+", text))
    if not words & last and not any(
        module.partition(".")[0] in words and words & functions
        for module, functions in _STARTS.items()
    ):
        return found
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({alias.asname or alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom):
            names.update(
                {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) or (
            isinstance(node, ast.Attribute) and node.attr in all_last
        ):
            text = node.id if isinstance(node, ast.Name) else ast.unparse(node)
            head, _, tail = text.partition(".")
            whole = f"{names.get(head, head)}.{tail}" if tail else names.get(head, head)
            if whole in known:
                found.add(whole)
            elif (
                isinstance(node, ast.Attribute)
                and node.attr in last
                and not text.startswith("self.")
            ):
                found.add(
                    f"?.{node.attr}"
                    if f"{head}.{node.attr}" not in known
                    else f"{head}.{node.attr}"
                )
    return found


def test_every_program_is_started_in_one_place() -> None:
    found = {
        (str(path.relative_to(ROOT)), start)
        for path in ROOT.rglob("*.py")
        for start in _starts(path)
    }
    assert found - _ALLOWED == set(), (
        "start programs with transom.kit.programs, and add a row to docs/security.md"
    )
    assert _ALLOWED - found == set(), "the list names what is not there any more"


def test_our_own_modules_import_nothing_from_the_current_directory() -> None:
    """`python -m` finds modules in the current directory first, without -P."""
    unsafe = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in ROOT.rglob("*.py")
        for source in [path.read_text()]
        if "sys.executable" in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.List | ast.Tuple)
        for words in [[ast.unparse(word) for word in node.elts]]
        if "sys.executable" in words and "'-m'" in words and "'-P'" not in words
    ]
    assert unsafe == []


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess as s\ns.run(['x'])",
        "from subprocess import Popen as P\nP(['x'])",
        "import os\nos.execv('x', [])",
        "from asyncio import create_subprocess_exec\nawait create_subprocess_exec('x')",
        "loop.subprocess_exec(f, 'x')",
        "import os\nos.system('x')",
        "from ctypes.util import find_library\nfind_library('z')",
        "import pty\npty.spawn('x')",
    ],
)
def test_the_search_finds_what_it_is_for(tmp_path: Path, source: str) -> None:
    path = tmp_path / "file.py"
    path.write_text(source)
    assert _starts(path)
