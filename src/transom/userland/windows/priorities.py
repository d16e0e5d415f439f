"""The priority classes of Windows processes. The kubelet sets its own by --windows-priorityclass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.userland.api import ProcessEntry, ProgramContext


class PriorityClass(NamedTuple):
    name: str  # .NET's name of the class
    base: int


NORMAL: Final = PriorityClass("Normal", 8)
_CLASSES: Final = {
    "IDLE_PRIORITY_CLASS": PriorityClass("Idle", 4),
    "BELOW_NORMAL_PRIORITY_CLASS": PriorityClass("BelowNormal", 6),
    "NORMAL_PRIORITY_CLASS": NORMAL,
    "ABOVE_NORMAL_PRIORITY_CLASS": PriorityClass("AboveNormal", 10),
    "HIGH_PRIORITY_CLASS": PriorityClass("High", 13),
    "REALTIME_PRIORITY_CLASS": PriorityClass("RealTime", 24),
}
_FLAG: Final = "--windows-priorityclass"


def sessions_of(context: ProgramContext) -> Callable[[ProcessEntry], int]:
    """The session of each process: on a machine, each container has its own session."""
    node = context.node
    if node is None or node.windows is None:
        return lambda entry: 0 if entry.system else 2
    numbers = node.windows.sessions()
    return lambda entry: numbers.get(entry.pid, 0)


def priority_of(argv: Sequence[str]) -> PriorityClass:
    """The priority class by the command line: only the kubelet sets one."""
    if "kubelet" not in argv[0].lower():
        return NORMAL
    found = NORMAL
    for position, word in enumerate(argv):
        name, has, value = word.strip("\"'").partition("=")
        if name == _FLAG:
            wanted = value if has else next(iter(argv[position + 1 :]), "")
            found = _CLASSES.get(wanted, NORMAL)
    return found
