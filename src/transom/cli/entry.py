"""The command's entry point: Ctrl-C while modules are still being imported ends without a traceback."""

from __future__ import annotations

import sys


def main() -> int:
    try:
        from transom.cli.main import main as run
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
