"""Man pages and completions that the wheel installs."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

from tools.manual import escape_roff, write_shared_files

from transom.cli.main import VERBS


def test_every_verb_has_a_page(tmp_path: Path) -> None:
    share = tmp_path / "share"
    write_shared_files(share, 0)
    pages = {path.name for path in (share / "man/man1").iterdir()}
    assert pages == {"transom.1.gz", *(f"transom-{verb}.1.gz" for verb in VERBS)}
    up = gzip.decompress((share / "man/man1/transom-up.1.gz").read_bytes()).decode()
    assert up.startswith('.TH "TRANSOM\\-UP" "1" "1970-01-01"')
    assert "\\-\\-taint\\-windows" in up and ".SH EXAMPLES" in up
    assert (share / "bash-completion/completions/transom").exists()
    if shutil.which("man"):
        for page in (share / "man/man1").iterdir():
            done = subprocess.run(
                ["man", "--warnings", "--encoding=utf8", str(page)],
                capture_output=True,
                text=True,
                env={"MANWIDTH": "80", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            )
            assert done.returncode == 0 and not done.stderr, (page.name, done.stderr)


def test_text_is_not_read_as_commands() -> None:
    assert escape_roff(".TH\n'x --a\\b") == "\\&.TH\n\\&'x \\-\\-a\\eb"
