"""csi-proxy on a simulated Windows machine: the named pipes for storage drivers when it is
installed.
"""

from __future__ import annotations

from typing import Final

from transom.machines.api import Files

_GROUPS: Final = {
    "disk": ("v1alpha1", "v1beta1", "v1beta2", "v1"),
    "filesystem": ("v1alpha1", "v1beta1", "v1beta2", "v1"),
    "smb": ("v1alpha1", "v1beta1", "v1beta2", "v1"),
    "volume": ("v1alpha1", "v1beta1", "v1beta2", "v1"),
    "iscsi": ("v1alpha1",),
    "system": ("v1alpha1",),
}
PIPES: Final = tuple(
    f"\\\\.\\pipe\\csi-proxy-{group}-{version}"
    for group, versions in _GROUPS.items()
    for version in versions
)


def install_csi_proxy(files: Files, wanted: bool) -> None:
    """Installs or removes it."""
    for pipe in PIPES:
        if files.exists(pipe) == wanted:
            continue
        if wanted:
            files.make(pipe, "pipe", 0o666)
        else:
            files.remove(pipe)
