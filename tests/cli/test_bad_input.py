"""Wrong names, files, values and streams: every command prints one line about the problem, and
exits with a documented code.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from transom.cli import main as program
from transom.cli.main import VERBS, main
from transom.cluster import config as configs
from transom.cluster.config import ClusterConfig
from transom.cluster.pki import ensure_cluster_pki


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("binary").write_bytes(bytes(range(256)) * 8)
    Path("folder").mkdir()
    Path("broken.yaml").write_text("a: [")
    Path("list.yaml").write_text("- 1\n")
    Path("text").write_text("just a text\n")
    Path("pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")
    return tmp_path


def run(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    try:
        code = main(shlex.split(line))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def check(line: str, code: int, printed: str, allowed: tuple[int, ...]) -> None:
    assert code in allowed, (line, code, printed)
    assert "Traceback" not in printed and "bug in transom" not in printed, (line, printed)
    assert re.search(r"^(error: |usage: |transom [\w-]+( \w+)?: error: )", printed, re.M), (
        line,
        printed,
    )


# With any of these in place of FILE.
_FILES = ("binary", "folder", "broken.yaml", "list.yaml", "text", "/dev/null/x")


@pytest.mark.parametrize(
    "line",
    [
        "up --config FILE",
        "up --no-nodes --audit-policy FILE",
        "up --no-nodes --encryption-key-file FILE",
        "up --no-nodes --kubeconfig FILE",
        "explain-schedule a --kubeconfig FILE",
        "scheduler --config FILE",
        "scheduler --kubeconfig FILE",
        "controller-manager --kubeconfig FILE",
        "doctor --kubeconfig FILE",
        "dns --kubeconfig FILE",
        "proxy --output nft --kubeconfig FILE",
        "proxy --output nft --config FILE",
        "bench api --kubeconfig FILE",
        "snapshot verify FILE",
        "snapshot restore FILE",
        "image load FILE",
        "webhook --cert-file FILE --key-file FILE",
        "lint --config FILE pod.yaml",
        "lint --kubeconfig FILE pod.yaml",
        "report --kubeconfig FILE -o /dev/null/x",
        "snapshot save /dev/null/x",
        "snapshot save folder",
    ],
)
def test_files_that_are_not_what_they_should_be(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in _FILES if "FILE" in line else ("",):
        text = line.replace("FILE", file)
        code, printed = run(text, capsys)
        check(text, code, printed, (1, 2, 3, 4))
        assert configs.known_clusters() == [], text


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("nope", 2),
        ("help nope", 2),
        ("", 2),
        ("status --name ''", 2),
        ("status --name ../x", 2),
        ("delete --name A", 2),
        ("delete --name images", 2),
        ("delete --all --name x", 2),
        ("status --name nope", 1),
        ("down --name nope", 1),
        ("logs --name nope", 1),
        ("logs --tail x", 2),
        ("node", 2),
        ("node frob", 2),
        ("node list", 1),
        ("node delete x", 1),
        ("node delete", 2),
        ("node set a", 2),
        ("node set a b=c", 2),
        ("ps --name nope", 1),
        ("trace", 2),
        ("trace a", 2),
        ("trace a b", 1),
        ("hns", 2),
        ("hns a networks", 1),
        ("explain", 2),
        ("up --port 99999", 2),
        ("up --port x", 2),
        ("up --linux -1", 2),
        ("up --build 1", 2),
        ("bench api --tests nope", 2),
        ("webhook --manifest --build 1", 2),
        ("up --release 9", 2),
        ("up --feature-gates x", 2),
        ("up --runtime x", 2),
        ("up --reject-windows NOPE", 2),
        ("bench api --objects x", 2),
        ("kubeconfig --output xml", 2),
        ("image remove nope", 1),
        ("image list x", 2),
        ("version x", 2),
        ("webhook --port 99999 --self-signed", 2),
        ("dns --port x", 2),
        ("demo", 1),
        ("snapshot", 2),
        ("kubeconfig --name nope", 1),
        ("snapshot save --name nope", 1),
        ("apiserver --port x", 2),
        ("image save nope --file ''", 2),
        ("image load --file ''", 2),
        ("lint pod.yaml --output-file ''", 2),
        ("webhook --cert-file '' --key-file ''", 2),
        ("report --output-file ''", 2),
    ],
)
def test_words_that_make_no_sense(line: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    found, printed = run(line, capsys)
    if line:
        check(line, found, printed, (code,))
    assert found == code


@pytest.mark.parametrize(
    "line",
    [
        "node list",
        "node add x",
        "node exec a -- b",
        "node shell a",
        "ps",
        "trace a b",
        "hns a networks",
        "demo",
        "bench api",
    ],
)
def test_cluster_that_does_not_run(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = ClusterConfig("blue", port=1)
    configs.save_config(config)
    ensure_cluster_pki(config)
    verb, *rest = line.split(" ", 1)
    text = f"{verb} --name blue {' '.join(rest)}"
    code, printed = run(text, capsys)
    check(text, code, printed, (1,))
    assert "start it with: transom up --name blue" in printed, printed


def test_an_unexpected_error(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(program, "_run", fail)
    assert main(["status"]) == 70
    printed = capsys.readouterr().err
    file = home / "data" / "transom" / "last-error.log"
    assert printed.splitlines()[0] == "error: this is a bug in transom: RuntimeError: two lines"
    assert str(file) in printed and "Traceback" not in printed
    assert "Traceback" in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    assert configs.known_clusters() == []
    monkeypatch.setenv("XDG_DATA_HOME", "/dev/null/x")
    assert main(["status"]) == 70 and "cannot write the details" in capsys.readouterr().err


def test_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "_run", interrupt)
    assert main(["status"]) == 130 and capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("redirection", "code"),
    [
        (">&-", 0),
        (">/dev/full", 4),
        ("2>&- >&-", 0),
        ("<&-", 0),
        ("| head -c 1", 0),
    ],
)
def test_streams_that_cannot_be_used(redirection: str, code: int) -> None:
    line = f"{shlex.quote(sys.executable)} -m transom.cli.main matrix {redirection}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def _examples(verb: str) -> list[list[str]]:
    """The words of each command; what follows three spaces is an explanation."""
    _, command = program.make_parser(verb)
    found = []
    for line in command.examples.replace("\\\n", " ").splitlines():
        command = re.search(r"transom [a-z].*?(?=\s{3,}|$)", line)
        if command is not None:
            words = shlex.shlex(command[0], posix=True, punctuation_chars=True)
            words.whitespace_split = True
            found.append(
                list(itertools.takewhile(lambda word: word not in ("|", ">", "&&", ")"), words))
            )
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_examples_of_help_can_be_parsed(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = _examples(verb)
    assert examples
    for _, word, *arguments in examples:
        try:
            program._parse(program.make_parser(word)[0], arguments)
        except SystemExit as ended:
            raise AssertionError(f"{word} {arguments}: {capsys.readouterr().err}") from ended


def test_data_folder_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("/dev/null", "/dev/null/x", f"{os.getcwd()}/binary"):
        monkeypatch.setenv("XDG_DATA_HOME", folder)
        assert main(["status", "--all"]) == 0
        code, printed = run("up --no-nodes", capsys)
        check(f"{folder}: up", code, printed, (1, 4))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("up --port 22x", "a port is a number from 0 to 65535, not '22x'"),
        ("up --servers 2x", "a cluster has 1 to 9 API servers, not '2x'"),
        ("up --linux one", "a cluster has 0 to 5000 nodes of a kind, not 'one'"),
    ],
)
def test_a_wrong_number_is_explained(
    line: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = run(line, capsys)
    assert code == 2
    assert printed.rstrip().endswith(problem)


def test_lint_does_not_call_a_missing_file_free_of_findings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, printed = run("lint nowhere.yaml", capsys)
    assert code == 2
    assert "No findings" not in printed
