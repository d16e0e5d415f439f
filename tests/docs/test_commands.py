"""Every command of the documentation runs as printed, and prints what the page shows.

One cluster serves all pages; a page that starts another, or starts it with other options, says so
in comments for this test (see `pages`). What cannot run here is skipped, with a reason that the
page gives or a program that is missing.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conftest import kubectl_binaries
from tests.docs import pages
from tests.docs.pages import Command, Shell, blocks, difference

DEFAULT_UP = "transom status >/dev/null 2>&1 || { transom delete; transom up; }"


@pytest.mark.parametrize("page", pages.pages())
def test_every_block_says_what_it_is(page: str) -> None:
    """A block without a language would not be run, whatever is in it."""
    assert [b.where for b in blocks(page) if b.language not in (*pages.RUN, *pages.OTHER)] == []


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\n...\nc", "a\nb\nb\nc", True),
        ("a\n...", "a\nb\nc", True),
        ("a ... c", "a b c", True),
        ("after 1.16 s: https://127.0.0.1:36683", "after 0.9 s: https://127.0.0.1:1", True),
        ("NAME   AGE\na      12s", "NAME AGE\na    2m5s", True),
        ("10.244.3.14 x", "10.244.1.2 x", True),
        ("a", "b", False),
        ("a", "a\nb", False),
        ("a\nb", "a", False),
        ("...\nb", "a", False),
    ],
)
def test_output_is_compared(expected: str, printed: str, same: bool) -> None:
    assert (difference(expected, printed) == "") == same


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a\nb \\\n  c\n# note\n\nd", ["a", "b \\\n  c", "d"]),
        ("cat <<'EOF' > x\n1\n\n2\nEOF\ny", ["cat <<'EOF' > x\n1\n\n2\nEOF", "y"]),
    ],
)
def test_commands_of_a_block(body: str, expected: list[str]) -> None:
    assert list(pages._statements(body.splitlines())) == expected


def test_exit_code_in_a_comment() -> None:
    assert (Command("false   # fails: exit code 1").exit_code, Command("true").exit_code) == (1, 0)


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_commands_run_as_printed(tmp_path: Path, isolated_environment: dict[str, str]) -> None:
    """Two readers at once, each with a home and clusters of their own, for half of the pages."""
    binaries = kubectl_binaries()
    if not binaries:
        pytest.skip("no kubectl on this machine")
    chosen = os.environ.get("TRANSOM_DOCS_PAGES", "").split() or pages.pages()
    env = {
        **isolated_environment,
        "TERM": "dumb",
        "PATH": f"{Path(sys.executable).parent}:{Path(binaries[0]).parent}:{os.environ['PATH']}",
    }
    del env["XDG_DATA_HOME"]  # pages name the usual folder, below the home
    env.pop("COLUMNS", None)  # of a test runner; lines are as long as where there is no terminal
    with ThreadPoolExecutor(2) as readers:
        halves = [
            readers.submit(_read, chosen[i::2], tmp_path / f"reader-{i}", env) for i in range(2)
        ]
    shells = [shell for half in halves for shell in half.result()]
    seconds = {what: took for shell in shells for what, took in shell.seconds.items()}
    slowest = "\n".join(
        f"{seconds[what]:.1f} s: {what}" for what in sorted(seconds, key=lambda w: -seconds[w])[:10]
    )
    logging.getLogger(__name__).info("%.0f s\n%s", sum(seconds.values()), slowest)
    problems = [problem for shell in shells for problem in shell.problems]
    assert not problems, f"{len(problems)} problems\n" + "\n\n".join(problems)


def _read(chosen: list[str], home: Path, env: dict[str, str]) -> list[Shell]:
    """One reader's pages, each in a folder of its own."""
    home.mkdir()
    own = {**env, "HOME": str(home)}
    shells = []
    try:
        for page in chosen:
            found = [b for b in blocks(page) if b.language in pages.RUN]
            if not any(not b.skip for b in found):
                continue
            folder = home / page.replace("/", "-")
            folder.mkdir()
            shell = Shell(folder, own)
            shells.append(shell)
            if page != "README.md":  # it starts with that itself
                code, printed = shell.run(DEFAULT_UP)
                assert code == 0, printed
            for block in found:
                shell.run_block(block)
    finally:
        subprocess.run(
            [sys.executable, "-m", "transom.cli.main", "delete", "--all"],
            env=own,
            capture_output=True,
            timeout=120,
        )
    return shells
