"""Run the tests that failed in the parallel run once more, one at a time: `make test` calls this
after a failure.

The machines that run the tests are shared. A test that fails because others took the CPU passes
alone; a defect fails again. Tests that passed only alone are listed, so that they get fixed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 30  # more failures than that have a cause other than a busy machine


def main() -> int:
    for stacks in sorted(Path(".tools").glob("hung-*.txt")):
        print(f"A test did not end; {stacks}:", stacks.read_text(), sep="\n")
    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests failed; up to {MOST} are run again.")
        return 1
    print(f"Running the {len(failed)} failed tests again, one at a time.", flush=True)
    # One process for each: what a test leaves behind cannot fail the next one.
    again = {
        name: subprocess.run([sys.executable, "-m", "pytest", "-n0", name]).returncode
        for name in failed
    }
    _print_names("Passed only when run alone:", [name for name in failed if again[name] == 0])
    _print_names("Failed again:", [name for name in failed if again[name] != 0])
    return max(again.values())


def _print_names(title: str, names: list[str]) -> None:
    if names:
        print(title, *names, sep="\n  ", flush=True)


if __name__ == "__main__":
    sys.exit(main())
