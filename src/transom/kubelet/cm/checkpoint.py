"""The state files of the container manager, /var/lib/kubelet/cpu_manager_state for example.

Their checksum is Kubernetes': the FNV-1a hash of the object as Go prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from transom.machinery.hashes import fnv32a

CpuEntries = Mapping[str, Mapping[str, str]]  # by pod uid and container


def cpu_manager_checkpoint(policy: str, default: str, entries: CpuEntries) -> bytes:
    text = (
        f"(*state.CPUManagerCheckpoint){{PolicyName:(string){policy} "
        f"DefaultCPUSet:(string){default} Entries:(map[string]map[string]string)"
        f"{_go_map(entries)} Checksum:(checksum.Checksum)0}}"
    )
    content: dict[str, Any] = {"policyName": policy, "defaultCpuSet": default}
    if entries:
        content["entries"] = {uid: dict(sorted(entries[uid].items())) for uid in sorted(entries)}
    content["checksum"] = fnv32a(text.encode())
    return orjson.dumps(content)


def read_cpu_manager_checkpoint(data: bytes, policy: str) -> tuple[str, CpuEntries]:
    """The default set and the entries. Raises ValueError with the text of Kubernetes."""
    try:
        content = orjson.loads(data)
        default, entries = str(content["defaultCpuSet"]), dict(content.get("entries") or {})
        saved = str(content["policyName"])
    except (KeyError, TypeError, ValueError) as problem:
        raise ValueError("checkpoint is corrupted") from problem
    expected = orjson.loads(cpu_manager_checkpoint(saved, default, entries))
    if expected["checksum"] != content.get("checksum"):
        raise ValueError("checkpoint is corrupted")
    if saved != policy:
        raise ValueError(
            f'configured policy "{policy}" differs from state checkpoint policy "{saved}"'
        )
    return default, entries


def _go_map(entries: CpuEntries) -> str:
    pods = (
        f"{uid}:map[{' '.join(f'{name}:{cpus}' for name, cpus in sorted(found.items()))}]"
        for uid, found in sorted(entries.items())
    )
    return f"map[{' '.join(pods)}]"
