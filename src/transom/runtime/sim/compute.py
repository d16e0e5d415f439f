"""The compute systems of a Windows machine, as its host compute service lists them: one for each
container with its own job object or virtual machine. Read from the runtime's records.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.records import SimContainer, SimSandbox

_OWNERS: Final = {True: "docker", False: "containerd-shim-runhcs-v1.exe"}
NIL_GUID: Final = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class ComputeSystem:
    id: str
    owner: str
    virtual_machine: bool
    runtime_id: str
    sandbox: SimSandbox
    container: SimContainer | None  # None: the sandbox's own


def compute_systems(core: SimCore) -> Iterator[ComputeSystem]:
    """docker runs a pause container for each sandbox; containerd does so in virtual machines
    only.
    """
    owner = _OWNERS[core.docker]
    for sandbox in core.sandboxes.values():
        if sandbox.state != "ready":
            continue
        if sandbox.isolation.hyperv:
            machine = str(uuid.uuid5(uuid.NAMESPACE_OID, sandbox.id)).upper()
            yield ComputeSystem(f"{sandbox.id}@vm", owner, True, machine, sandbox, None)
        elif core.docker:
            yield ComputeSystem(sandbox.id, owner, False, NIL_GUID, sandbox, None)
        for container in sandbox.containers:
            if container.state == "running":
                yield ComputeSystem(container.id, owner, False, NIL_GUID, sandbox, container)
