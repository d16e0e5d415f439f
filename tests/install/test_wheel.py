"""The wheel in an empty environment: what it needs, how large it is, and that it works there."""

from __future__ import annotations

import importlib.metadata
import marshal
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from tools.dist import build
from tools.locked import ROOT, RUNTIME, read_lock

from transom import __version__

pytestmark = pytest.mark.timeout(300)  # the first build parses all modules
MACOS = Path(__file__).with_name("macos.py")
LARGEST = 60_000_000  # bytes of all files that `pip install` leaves: what it unpacks, and compiles
EPOCH = "1700000000"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    _build(folder)
    return folder


def _build(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", EPOCH)
        patch.setenv("COLUMNS", "80")
        build(folder)


@pytest.fixture(scope="module")
def environment(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, and with what requirements.lock lists: nothing of the
    extras.
    """
    folder = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    wheel = next(dist.glob("*.whl"))
    options = ["--no-deps", "--no-compile", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, *options, str(wheel)], check=True)
    packages = next((folder / "lib").glob("python3*/site-packages"))
    for file in _dependency_files():
        top = file.parts[0]
        if not (packages / top).exists():
            source = Path(importlib.metadata.distribution("pip").locate_file(top))
            (packages / top).symlink_to(source)
    return folder


def _dependency_files() -> Iterator[importlib.metadata.PackagePath]:
    for locked in read_lock(RUNTIME):
        for file in importlib.metadata.files(locked.name) or ():
            if not file.parts[0].startswith("..") and file.parts[0] != "__pycache__":
                yield file


def _run(environment: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    home = str(environment / "home")
    env = {"PATH": os.environ["PATH"], "HOME": home, "PYTHONDONTWRITEBYTECODE": "1", **more}
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=100)


def test_the_command_runs(environment: Path) -> None:
    for command in ("transom", "kubectl-transom"):
        done = _run(environment, str(environment / "bin" / command), "--help")
        assert done.returncode == 0, done.stderr
        assert "transom VERB --help" in done.stdout
    done = _run(environment, str(environment / "bin/transom"), "version")
    assert done.returncode == 0 and __version__ in done.stdout, done.stderr


def test_it_runs_without_the_extras(environment: Path) -> None:
    script = (
        "import transom.cluster.run, transom.scheduler.scheduler, transom.apiserver.openapi.v2\n"
        "import sys; print(*(m for m in ('numpy', 'uvloop') if m in sys.modules))"
    )
    done = _run(environment, str(environment / "bin/python"), "-c", script)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_man_pages_and_completions_are_installed(environment: Path) -> None:
    share = environment / "share"
    assert (share / "man/man1/transom-up.1.gz").exists()
    assert "__complete" in (share / "bash-completion/completions/transom").read_text()


@pytest.mark.e2e
def test_a_cluster_with_the_wheel_and_what_macos_has(environment: Path, tmp_path: Path) -> None:
    """No part of the simulated runtime needs anything that only Linux has."""
    python = str(environment / "bin/python")
    more = {"XDG_DATA_HOME": str(tmp_path / "data"), "KUBECONFIG": str(tmp_path / "kubeconfig")}
    try:
        options = ["--linux", "1", "--windows", "1", "--name", "macos"]
        up = _run(environment, python, str(MACOS), "up", *options, **more)
        assert up.returncode == 0, up.stderr
        for verb in ("demo", "doctor", "down", "up", "delete"):
            done = _run(environment, python, str(MACOS), verb, "--name", "macos", **more)
            assert done.returncode == 0, (verb, done.stdout + done.stderr)
        assert not (tmp_path / "data/transom/macos").exists()
    finally:
        _run(environment, python, str(MACOS), "delete", "--name", "macos", **more)


def test_metadata(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        found = message_from_string(wheel.read(name).decode())
    assert found["Name"] == "transom-k8s" and found["Version"] == __version__
    supported = SpecifierSet(found["Requires-Python"])
    classifiers = found.get_all("Classifier") or []
    for minor in range(11, 15):
        assert supported.contains(f"3.{minor}.0")
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers
    needed = {
        canonicalize_name(r.name)
        for r in map(Requirement, found.get_all("Requires-Dist") or ())
        if "extra" not in str(r.marker)
    }
    assert needed <= {locked.name for locked in read_lock(RUNTIME)}
    assert not needed & {"numpy", "uvloop", "kubernetes-validate"}


def test_the_install_is_small(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        own = sum(entry.file_size for entry in wheel.infolist())
        compiled = sum(_compiled_size(wheel.read(name), name) for name in wheel.namelist())
    files = list(_dependency_files())
    others = sum(file.size or 0 for file in files)
    compiled += sum(_compiled_size(file.locate().read_bytes(), str(file)) for file in files)
    assert own + others + compiled < LARGEST, (own, others, compiled)


def _compiled_size(source: bytes, name: str) -> int:
    """The bytes of a module below `__pycache__`."""
    return len(marshal.dumps(compile(source, name, "exec"))) + 16 if name.endswith(".py") else 0


def test_the_same_sources_make_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    _build(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in dist.iterdir())
    assert {"SHA256SUMS", "sbom.cdx.json"} <= set(names) and len(names) >= 4
    for name in names:
        assert (tmp_path / name).read_bytes() == (dist / name).read_bytes(), name


def test_the_command_line_starts_quickly() -> None:
    script = (
        "import time; before = time.process_time(); import transom.cli.main; "
        "print(time.process_time() - before)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout)
        for _ in range(5)
    ]
    assert min(times) < 0.08, times


def test_all_ways_to_install_name_the_distribution() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").rglob("*")]
    wrong = re.compile(r"(?:pipx?|uv tool|uvx) (?:install|run)? *['\"]?transom(?![-\w])")
    for page in pages:
        if page.is_file() and page.suffix in (".md", ".yml", ".yaml", ".sh", ".json"):
            assert not wrong.search(page.read_text()), page


def test_an_editable_install_finds_the_modules(tmp_path: Path) -> None:
    """`make up` and `make test` install the checkout this way."""
    code = f"import hatchling.build as build; print(build.build_editable({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        paths = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith(".pth")]
    assert [text.strip() for text in paths] == [str(ROOT / "src")]
