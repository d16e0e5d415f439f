"""The command's entry point: Ctrl-C while modules are still being imported ends without a traceback."""

from __future__ import annotations

import gc
import sys

# Imports create tens of thousands of objects and hardly any garbage. With Python's default of 700,
# the collector takes 7 % of the CPU time of the imports of `transom up`.
_ALLOCATIONS_BEFORE_COLLECTION = 50_000


def main() -> int:
    gc.set_threshold(_ALLOCATIONS_BEFORE_COLLECTION, 10, 10)
    try:
        from transom.cli.main import main as run
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
