"""NodePorts: a host port can be taken once on each node."""

from __future__ import annotations

import numpy as np

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows
from transom.scheduler.framework import Cycle, Handle, Verdict, Verdicts, everywhere

_TAKEN = Verdict(("node(s) didn't have free ports for the requested pod ports",))


class NodePorts:
    name = "NodePorts"

    def __init__(self, args: Object, handle: Handle) -> None:
        pass

    def pre_filter(self, cycle: Cycle) -> Verdict | None:
        return None

    def filter(self, cycle: Cycle, rows: Rows) -> Mask | None:
        ports = cycle.pod.shape.ports
        if not ports:
            return None
        users = {row for port in ports for row in cycle.snapshot.port_users(port)}
        return ~np.isin(rows, list(users)) if users else None

    def verdicts(self, cycle: Cycle, rows: Rows) -> Verdicts:
        return everywhere(_TAKEN, rows)
