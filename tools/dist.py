"""`make dist`: builds the wheel and the sdist, with the software bill of materials and checksums.

The same commit makes the same bytes: times are those of the commit (SOURCE_DATE_EPOCH).
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import yaml
from tools.locked import ROOT
from tools.manual import SHARE, write_shared_files


def source_date() -> str:
    """SOURCE_DATE_EPOCH, else the time of the commit, else that of the lock file."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    done = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip() or str(int((ROOT / "requirements.lock").stat().st_mtime))


def krew_plugin(target: Path, epoch: int) -> None:
    """The archive of the kubectl plugin, and its manifest; KREW_URL is where the archive will be."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=epoch, filename="") as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for file, mode in (
            (ROOT / "deploy/krew/kubectl-transom", 0o755),
            (ROOT / "LICENSE", 0o644),
        ):
            entry = tarfile.TarInfo(file.name)
            entry.size, entry.mode, entry.mtime = file.stat().st_size, mode, epoch
            with file.open("rb") as content:
                archive.addfile(entry, content)
    name = f"kubectl-transom-{version}.tar.gz"
    (target / name).write_bytes(packed.getvalue())
    manifest = yaml.safe_load((ROOT / "deploy/krew/transom.yaml").read_text())
    manifest["spec"]["version"] = f"v{version}"
    for platform in manifest["spec"]["platforms"]:
        platform["uri"] = f"{os.environ.get('KREW_URL', 'https://example.invalid')}/{name}"
        platform["sha256"] = hashlib.sha256(packed.getvalue()).hexdigest()
    (target / "krew.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))


def build(target: Path) -> list[Path]:
    """Builds everything into the folder and returns the files. One build at a time: all use build/."""
    lock = ROOT / "build/lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        return _build(target)


def _build(target: Path) -> list[Path]:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": source_date(), "COLUMNS": "80"}
    os.environ.update(environment)
    write_shared_files(SHARE, float(environment["SOURCE_DATE_EPOCH"]))
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*transom*"):
        old.unlink()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(target)],
        cwd=ROOT,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    made = subprocess.run(
        [sys.executable, "-m", "tools.sbom"],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
    )
    (target / "sbom.cdx.json").write_bytes(made.stdout)
    krew_plugin(target, int(environment["SOURCE_DATE_EPOCH"]))
    names = ("*transom*", "krew.yaml", "sbom.cdx.json")
    files = sorted(file for name in names for file in target.glob(name))
    sums = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (target / "SHA256SUMS").write_text("".join(sums))
    return files


if __name__ == "__main__":
    for path in build((ROOT / sys.argv[1]).resolve()):
        print(f"{path.name}  {path.stat().st_size:,} bytes")
