"""`transom image`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transom.cli import image as verb
from transom.cli.main import main, overview
from transom.runtime.images.store import LocalImageStore

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "site").mkdir()
    (tmp_path / "site/index.html").write_text("hello")
    return tmp_path


def run(output: Output, *args: str, code: int = 0) -> str:
    assert main(["image", *args]) == code
    captured = output.readouterr()
    return captured.out if code == 0 else captured.err


def test_from_a_folder_to_an_archive_and_back(data: Path, capsys: Output) -> None:
    site, archive = str(data / "site"), str(data / "images.tar")
    words = (
        "--entrypoint",
        '["/httpd", "-f"]',
        "--cmd",
        "-p '8 0'",
        "--env",
        "A=b=c",
        "--user",
        "7:8",
        "--workdir",
        "/srv",
        "--expose",
        "80",
        "--label",
        "k=v",
    )
    assert (
        run(capsys, "import", site, "web:1", *words)
        == "image/docker.io/library/web:1 imported (linux/amd64)\n"
    )
    # of what was made in the same second it is the same image
    same = run(capsys, "import", site, "web:2", *words)
    assert same == "image/docker.io/library/web:2 imported (linux/amd64)\n"
    run(capsys, "remove", "web:2")
    windows = ("--os", "windows", "--build", "ltsc2022", "--cmd", 'C:\\app.exe "--a b"')
    assert "windows/amd64 10.0.20348.587" in run(capsys, "import", site, "web:1", *windows)
    before = json.loads(run(capsys, "list", "--output", "json"))
    assert before[0]["config"] == {
        "Entrypoint": ["/httpd", "-f"],
        "Cmd": ["-p", "8 0"],
        "Env": ["A=b=c"],
        "User": "7:8",
        "WorkingDir": "/srv",
        "ExposedPorts": {"80/tcp": {}},
        "Labels": {"k": "v"},
    }
    assert before[1]["config"] == {"Cmd": ["C:\\app.exe", "--a b"]}
    run(capsys, "save", "web:1", "--file", archive)
    assert "freed" in run(capsys, "prune", "--all")
    assert len(run(capsys, "list").splitlines()) == 1
    assert run(capsys, "load", "--file", archive).count("loaded") == 2
    after = json.loads(run(capsys, "list", "-o", "json"))
    assert [row["manifest"] for row in after] == [row["manifest"] for row in before]
    assert (data / "data/transom/images/index.json").exists()


def test_removing(data: Path, capsys: Output) -> None:
    run(capsys, "import", str(data / "site"), "web:1")
    [row] = json.loads(run(capsys, "list", "-o", "json"))
    store = LocalImageStore(data / "data/transom/images")
    store.register(row["manifest"], [("docker.io/library/web:2", row["manifest"])], local=True)
    assert run(capsys, "remove", "web:2") == "image/docker.io/library/web:2 removed\n"
    store.lease(row["id"], "kind/linux-1/abc")
    assert "in use by kind/linux-1/abc" in run(capsys, "remove", "web:1", code=1)
    assert run(capsys, "list").splitlines()[1].split()[0::6] == ["docker.io/library/web:1"]
    run(capsys, "remove", row["id"][7:19], "--force")
    assert "there is no image 'web:1'" in run(capsys, "remove", "web:1", code=1)


def test_pulling_what_is_built_in(data: Path, capsys: Output) -> None:
    name = "mcr.microsoft.com/windows/servercore:ltsc2019"
    assert run(capsys, "pull", name) == f"image/{name} pulled (windows/amd64 10.0.17763.1697)\n"
    assert "no match for platform" in run(capsys, "pull", name, "--build", "20348", code=1)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("import", "/nowhere", "web:1"), "is not a folder"),
        (("import", ".", "Web"), "must be lowercase"),
        (("import", ".", "web", "--cmd", "[1]"), "is not a valid command"),
        (("import", ".", "web", "--cmd", "'"), "is not a valid command"),
        (("import", ".", "web", "--env", "A"), "--env takes KEY=VALUE"),
        (("import", ".", "web", "--os", "windows", "--build", "95"), "no build '95'"),
        (("load", "--file", "/etc/hostname"), "unexpected EOF"),
        (("save", "none", "--file", "/dev/null"), "there is no image 'none'"),
        (("pull", "busybox", "--username", "me"), "go together"),
    ],
)
def test_mistakes(
    data: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], problem: str
) -> None:
    monkeypatch.chdir(data)
    assert problem in run(capsys, *args, code=1)


def test_help_has_examples_that_can_be_read(capsys: Output) -> None:
    assert "  image " in overview()
    with pytest.raises(SystemExit):
        main(["image", "--help"])
    shown = capsys.readouterr().out
    first = verb.HELP.splitlines()[0]
    assert "transom image import" in shown and first in " ".join(shown.split())


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0B"), (999, "999B"), (1500, "1.5kB"), (2_140_997, "2.14MB"), (5e12, "5TB")],
)
def test_sizes(size: float, text: str) -> None:
    assert verb.format_size(size) == text
