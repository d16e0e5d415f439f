"""secret: a secret's values as files, in memory where the system can."""

from __future__ import annotations

from transom.kubelet.volumes import payloads
from transom.kubelet.volumes.plugin import MountedVolume, PodVolumeSpec, VolumeHost, VolumePlugin
from transom.machinery.objects import Object

NAME = "kubernetes.io/secret"


async def set_up_secret(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    before: MountedVolume | None,
    max_age: float,
) -> MountedVolume:
    source = spec.source
    payload = await payloads.secret_payload(
        tools,
        pod["metadata"]["namespace"],
        source.get("secretName") or "",
        source,
        source.get("defaultMode"),
        max_age,
    )
    return await payloads.publish_payload(tools, pod, spec, NAME, payload, before, in_memory=True)


PLUGIN = VolumePlugin(NAME, set_up_secret, refreshes=True)
