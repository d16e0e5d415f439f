"""What containerd reports about the mounts of image volumes."""

from __future__ import annotations

from typing import Final

from transom.runtime.api import Mount, RuntimeFailure

_STATE: Final = "/run/containerd/io.containerd.grpc.v1.cri/image-volumes"
IMAGE_VOLUMES_ON_WINDOWS: Final = (
    'failed to generate spec: failed to mkdir "": mkdir : '
    "The system cannot find the path specified."
)


def image_volume_path(sandbox: str, image: str) -> str:
    """Where containerd mounts the image for a pod."""
    return f"{_STATE}/{sandbox}/{image.removeprefix('sha256:')}"


def image_sub_path_missing(mount: Mount, within: str) -> RuntimeFailure:
    path = mount.image_sub_path
    return _failed(mount, within, f"openat {path}: no such file or directory")


def image_sub_path_is_file(mount: Mount, within: str) -> RuntimeFailure:
    text = f'only directory subpath is supported, subpath: "{mount.image_sub_path}", '
    return _failed(mount, within, f'{text}mountpoint: "{within}" ')


def _failed(mount: Mount, within: str, text: str) -> RuntimeFailure:
    return RuntimeFailure(
        "Unknown",
        "failed to mount image volume: failed to ensure image subpath "
        f'"{mount.image_sub_path}" in "{within}": {text}',
    )
