"""The command's entry point. It imports nothing before it has decided what Ctrl-C does: a traceback of
the imports helps no user.
"""

from __future__ import annotations

import gc
import signal
import sys

# Imports create tens of thousands of objects and hardly any garbage. With Python's default of 700,
# the collector takes 7 % of the CPU time of the imports of `transom up`.
_ALLOCATIONS_BEFORE_COLLECTION = 50_000


def main() -> int:
    _prepare_imports()
    from transom.cli.main import main as run

    try:
        return run()
    finally:
        _end_at_interrupt()  # nothing is left to clean up
        gc.freeze()  # else the interpreter examines all objects before it exits, for 15 ms


def complete_for_kubectl() -> int:
    """`kubectl_complete-transom`, which kubectl runs at each Tab."""
    _prepare_imports()
    from transom.cli.main import print_kubectl_completion as run

    return run()


def _prepare_imports() -> None:
    _end_at_interrupt()
    gc.set_threshold(_ALLOCATIONS_BEFORE_COLLECTION, 10, 10)
    from transom.kit.interrupts import delay_interrupts_during_imports

    delay_interrupts_during_imports()


def _end_at_interrupt() -> None:
    """Ctrl-C ends the process as it ends a C program: at once, without a traceback. The command itself
    raises KeyboardInterrupt again (cli/main.py). In the background of a script it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
