"""secret: a secret's values as files, in memory where the system can."""

from __future__ import annotations

from transom.kubelet.volumes import payloads
from transom.kubelet.volumes.plugin import Mounted, Plugin, Spec, Tools
from transom.machinery.objects import Object

NAME = "kubernetes.io/secret"


async def set_up(tools: Tools, pod: Object, spec: Spec, before: Mounted | None, max_age: float) -> Mounted:
    source = spec.source
    payload = await payloads.of_secret(
        tools, pod["metadata"]["namespace"], source.get("secretName") or "", source, source.get("defaultMode"), max_age
    )
    return payloads.put(tools, pod, spec, NAME, payload, before, in_memory=True)


PLUGIN = Plugin(NAME, set_up, refreshes=True)
