"""configMap: a config map's values as files, on disk."""

from __future__ import annotations

from transom.kubelet.volumes import payloads
from transom.kubelet.volumes.plugin import MountedVolume, PodVolumeSpec, VolumeHost, VolumePlugin
from transom.machinery.objects import Object

NAME = "kubernetes.io/configmap"


async def set_up_config_map(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    before: MountedVolume | None,
    max_age: float,
) -> MountedVolume:
    source = spec.source
    payload = await payloads.config_map_payload(
        tools,
        pod["metadata"]["namespace"],
        source.get("name") or "",
        source,
        source.get("defaultMode"),
        max_age,
    )
    return await payloads.publish_payload(tools, pod, spec, NAME, payload, before, in_memory=False)


PLUGIN = VolumePlugin(NAME, set_up_config_map, refreshes=True)
