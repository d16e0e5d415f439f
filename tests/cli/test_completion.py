"""Completions, aliases of other tools, and tables that fit the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from transom.cli import console
from transom.cli.aliases import ALIASES, resolve_alias
from transom.cli.completion import SHELLS, complete, completion_script
from transom.cli.main import VERBS, main, make_parser, print_kubectl_completion
from transom.node.settings import clusters_dir, default_name, name_option


@pytest.fixture(autouse=True)
def two_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("TRANSOM_NAME", raising=False)
    for name in ("blue", "green"):
        (clusters_dir() / name).mkdir(parents=True)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sta", ["start", "status"]),
        ("get ", ["clusters", "kubeconfig", "nodes"]),
        ("up --name ", ["blue", "green"]),
        ("delete --name=x --al", ["--all"]),
        ("create cluster --name b", ["blue"]),
        ("cluster stop --name g", ["green"]),
        ("up --name=", ["--name=blue", "--name=green"]),
        ("delete --name=b", ["--name=blue"]),
        ("delete --name = b", ["blue"]),  # how bash splits it
        ("delete --name =", ["blue", "green"]),
        ("delete --name = blue --a", ["--all"]),
        ("create c", ["cluster"]),
        ("create --na", ["--name"]),
        ("up --build 203", ["20348"]),
        ("lint --release 1.36", ["1.36"]),
        ("up --release 1.36", ["1.36"]),
        ("up --output y", ["yaml"]),
        ("node re", ["reboot"]),
        ("image l", ["list", "load"]),
        ("image load --from p", ["podman"]),
        ("explain WIN-NET-001", ["WIN-NET-001"]),
        ("completion z", ["zsh"]),
        ("lint ", []),  # file names, which the shell completes
        ("node stop ", []),  # there is no cluster that could be asked
        ("nonsense --", []),
    ],
)
def test_candidates_for_the_last_word(line: str, found: list[str]) -> None:
    assert complete(line.split(" "), VERBS, make_parser) == found


def test_all_verbs_and_options_are_candidates() -> None:
    assert set(VERBS) < set(complete([""], VERBS, make_parser))
    for verb in VERBS:
        assert "--help" in complete([verb, "-"], VERBS, make_parser)


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_are_valid(shell: str) -> None:
    script = completion_script(shell)
    assert "__complete" in script
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A transom that shells find."""
    found = tmp_path / "bin/transom"
    found.parent.mkdir()
    found.write_text(f'#!/bin/sh\nexec {sys.executable} -m transom.cli.entry "$@"\n')
    found.chmod(0o755)
    monkeypatch.setenv("PATH", f"{found.parent}:{os.environ['PATH']}")
    return found


def _run_shell(shell: str, script: str, folder: Path) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    done = subprocess.run([shell, "-c", script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bash_completes(command: Path) -> None:
    test = 'COMP_WORDS=(transom up --name ""); COMP_CWORD=3; _transom; echo "${COMPREPLY[@]}"'
    out = _run_shell("bash", completion_script("bash") + test, command.parent)
    assert out == "blue green\n"


def test_fish_completes(command: Path) -> None:
    """Names, and files only where files are meant."""
    test = 'complete -C "transom up --name "; echo; complete -C "transom lint tr"'
    out = _run_shell("fish", completion_script("fish") + test, command.parent)
    assert out == "blue\ngreen\n\ntransom\n"


def test_zsh_completes(command: Path) -> None:
    """In a terminal of its own: zsh completes only what is typed. The line is printed, not run."""
    (command.parent / "_transom").write_text(completion_script("zsh"))
    test = """
        zmodload zsh/zpty
        zpty shell 'PS1= TERM=dumb zsh -f -i'
        zpty -w shell 'fpath=($PWD $fpath); autoload -U compinit; compinit -D'
        zpty -w shell 'echo rea""dy'
        zpty -r shell seen '*ready*'
        zpty -w shell 'bindkey -e'
        zpty -w -n shell $'transom up --name gr\t\x01print -r done: \n'
        zpty -r shell seen '*done: transom*--name*green*'
        print -r -- "$seen"
    """
    assert "transom up --name green " in _run_shell("zsh", test, command.parent)


def test_kubectl_asks_for_candidates(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-transom", "up", "--name", "b"])
    assert print_kubectl_completion() == 0
    assert capsys.readouterr().out == "blue\n:4\n"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("create cluster", "up"),
        ("create cluster --name blue --config c.yaml", "up --name blue --config c.yaml"),
        ("delete cluster --name=blue", "delete --name=blue"),
        ("delete clusters --all", "delete --all"),
        ("cluster create blue", "up --name blue"),
        ("cluster list", "list"),
        ("kubeconfig get blue", "kubeconfig --name blue"),
        ("start -p blue", "up --name blue"),
        ("start --profile=blue", "up --name=blue"),
        ("stop", "down"),
        ("get clusters", "list --quiet"),
        ("load docker-image web:1", "image load --from docker web:1"),
        ("load docker-image web:1 --name ci --nodes a,b", "image load --from docker web:1"),
        ("delete cluster --name ci --kubeconfig file", "delete --name ci"),
        ("delete clusters -A", "delete --all"),
        ("create cluster --retain", "up"),
        ("load image-archive web.tar", "image load --file web.tar"),
        ("delete --all", "delete --all"),
        ("kubeconfig --name blue", "kubeconfig --name blue"),
    ],
)
def test_words_of_other_tools(typed: str, meant: str) -> None:
    assert resolve_alias(typed.split()) == meant.split()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("create cluster --image kindest/node:v1.34.0@sha256:0a1b", "up --release 1.34"),
        ("create cluster --name ci --wait 60s", "up --name ci"),
        ("cluster create blue --servers 1 --agents 2", "up --name blue --linux 2"),
        (
            "cluster create -i localhost:5000/k3s:v1.31.4-k3s1 -s 3 --wait",
            "up --release 1.31 --servers 3",
        ),
        ("cluster delete -a", "delete --all"),
        ("start --driver=docker --kubernetes-version=v1.32.0", "up --release 1.32"),
        ("start -p blue --nodes 3", "up --name blue --linux 2"),
        ("start --nodes", "up --linux"),
    ],
)
def test_options_of_other_tools(typed: str, meant: str) -> None:
    words = resolve_alias(typed.split())
    assert [word for word in words if word] == meant.split()
    if words[-1]:
        make_parser(words[0])[0].parse_args(words[1:])


def test_aliases_lead_to_options_that_exist() -> None:
    for alias in ALIASES.values():
        verb, *rest = alias.words
        parser, _ = make_parser(verb)
        parser.parse_args([*rest, *(["x"] if rest[-1:] in (["--file"], ["docker"]) else [])])
        if alias.takes_name:
            assert parser.parse_args(["--name", "blue"]).name == "blue"


def test_list_prints_names_or_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", "clusters"]) == 0
    assert capsys.readouterr().out == "blue\ngreen\n"
    assert main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "NAME",
        "blue",
        "green",
    ]


def test_the_environment_selects_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (default_name(), name_option("transom")) == ("transom", "")
    monkeypatch.setenv("TRANSOM_NAME", "green")
    assert make_parser("status")[0].parse_args([]).name == "green"
    assert (name_option("green"), name_option("transom")) == ("", " --name transom")


def test_dry_run_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "kubeconfig")
    assert main(["up", "--name", "new", "--dry-run", "--windows", "1", "--kubeconfig", target]) == 0
    assert "windows-1" in capsys.readouterr().out
    assert main(["delete", "--all", "--dry-run"]) == 0
    assert capsys.readouterr().out.count("Would delete cluster") == 2
    assert sorted(path.name for path in clusters_dir().iterdir()) == ["blue", "green"]
    assert not Path(target).exists()


def test_delete_all_can_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["delete", "--all"]) == 0
    assert capsys.readouterr().out == "Cluster blue deleted.\nCluster green deleted.\n"
    assert main(["delete", "--all"]) == 0
    assert main(["delete", "cluster", "blue"]) == 0


@pytest.mark.parametrize("columns", [30, 44, 60, 200])
def test_tables_fit(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    rows = [("NAME", "STATE", "WHY"), ("web", "running", "x" * 60), ("y" * 25, "-", "short")]
    console.print_table(rows)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= columns for line in lines)
    assert ("..." in lines[1]) == (columns < 90) and lines[1].startswith("web ")


def test_a_table_of_nodes_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    titles = "NAME STATE OS BUILD ADDRESS CPUS MEMORY RUNTIME KUBELET PODS"
    node = "control-plane ready linux 10.0.17763 172.20.0.2 4 8Gi containerd://2.1.5-sim v1.36.4 1"
    console.print_table([titles.split(), node.split()])
    title, row = capsys.readouterr().out.splitlines()
    assert max(len(title), len(row)) <= 80
    assert title.split() == titles.split()
    assert "172.20.0.2" in row


def test_tables_in_a_pipe_have_whole_cells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    console.print_table([("NAME",), ("x" * 60,)])
    assert "x" * 60 in capsys.readouterr().out


@pytest.mark.parametrize("columns", [46, 146])
def test_the_width_is_that_of_the_terminal(columns: int) -> None:
    """Also after `main` has replaced the standard output."""
    program = (
        "from transom.cli import console, main; main.main(['--help']); "
        "print(f'width {console.terminal_columns(80)}')"
    )
    terminal, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=its_end, env=env)
    os.close(its_end)
    printed = b""
    try:
        while data := os.read(terminal, 65536):
            printed += data
    except OSError:  # the program has ended
        pass
    os.close(terminal)
    assert process.wait() == 0
    assert printed.decode().split()[-2:] == ["width", str(columns)]
