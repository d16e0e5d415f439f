"""image: the files of an image, read-only. The kubelet pulls the image like that of a container,
and the runtime mounts it.
"""

from __future__ import annotations

from transom.kubelet.volumes.plugin import MountedVolume, PodVolumeSpec, VolumeHost, VolumePlugin
from transom.machinery.objects import Object

NAME = "kubernetes.io/image"


async def set_up_image(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    before: MountedVolume | None,
    max_age: float,
) -> MountedVolume:
    """The volume has no path on the node."""
    return MountedVolume(spec.name, "", read_only=True)


async def image_volumes_enabled(tools: VolumeHost, spec: PodVolumeSpec) -> bool:
    return tools.env.config.pod_features.image_volumes


PLUGIN = VolumePlugin(NAME, set_up_image, present=image_volumes_enabled)
