"""`make dist`: builds the wheel and the sdist, with the software bill of materials and checksums.

The same commit makes the same bytes: times are those of the commit (SOURCE_DATE_EPOCH).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

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


def build(target: Path) -> list[Path]:
    """Builds everything into the folder and returns the files."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": source_date(), "COLUMNS": "80"}
    os.environ.update(environment)
    write_shared_files(SHARE, float(environment["SOURCE_DATE_EPOCH"]))
    target.mkdir(parents=True, exist_ok=True)
    for old in (*target.glob("transom_k8s-*"), *target.glob("sbom.cdx.json")):
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
    files = sorted((*target.glob("transom_k8s-*"), target / "sbom.cdx.json"))
    sums = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (target / "SHA256SUMS").write_text("".join(sums))
    return files


if __name__ == "__main__":
    for path in build((ROOT / sys.argv[1]).resolve()):
        print(f"{path.name}  {path.stat().st_size:,} bytes")
