r"""HostProcess containers under Wine: processes that see the node's C: drive and network.

The node's drive gets Wine's files on first use (`install_windows`), so that all its HostProcess
containers and the kubelet see the same directories. Only the node's owner and HostProcess
containers can write there; links that a container has put there are followed only inside the drive.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from transom.machines.realfiles import RealFiles
from transom.machines.windows import host_process
from transom.machines.windows.accounts import WindowsUser
from transom.runtime.native.platform import ContainerRequest, Spec
from transom.runtime.wine import bundle, drives
from transom.runtime.wine.template import WineTemplate

_INSTALLED: Final = "wine"  # beside the drive, where no container can write
# Wine creates these directories at every start, unless they have these names exactly.
_SPELLED: Final = ("windows", "windows/system32")
_KEPT: Final = frozenset({"hosts"})  # the node's own


def install_windows(drive: Path, template: WineTemplate) -> None:
    """Adds the files of the template and of its helpers to a node's C: drive, once for each
    version of them. They replace the node's emulated programs. Raises OSError.
    """
    mark, version = drive.parent / _INSTALLED, f"{template.folder.name} {template.helpers.name}"
    if mark.is_file() and mark.read_text() == version:
        return
    files = RealFiles(drive)
    try:
        for folder in _SPELLED:
            found = drives.spelled_path(drive, folder.split("/"))
            if str(found) != folder and files.exists(f"/{found}"):
                files.rename(f"/{found}", f"/{folder}")
        for layer in (template.drive, template.helpers):
            _copy_layer(layer, drive, files)
    finally:
        files.close()
    mark.write_text(version)


def _copy_layer(layer: Path, drive: Path, files: RealFiles) -> None:
    for place, _, names in os.walk(layer):
        below = os.path.relpath(place, layer)
        where = drives.spelled_path(drive, () if below == "." else below.split("/"))
        mode = os.stat(place).st_mode & 0o7777
        if not files.exists(f"/{where}"):
            files.mkdir(f"/{where}", mode)
            files.chmod(f"/{where}", mode)
        for name in names:
            target = f"/{where / drives.spelled_path(drive / where, [name])}"
            if name in _KEPT and files.exists(target):
                continue
            with suppress(FileNotFoundError):
                files.remove(target)
            source = Path(place, name)
            if source.is_symlink():
                files.symlink(os.readlink(source), target)
            else:
                files.write(target, source.read_bytes(), source.stat().st_mode & 0o777)


def host_process_account(
    request: ContainerRequest, version: host_process.Version
) -> WindowsUser | None:
    """None if the account does not exist."""
    assert request.accounts is not None, "only nodes with Windows have HostProcess containers"
    windows = request.config.windows
    return host_process.log_on(
        request.accounts,
        version,
        windows.run_as_user_name if windows is not None else "",
        host_process.account_of_container(request.id),
    )


def discard_account(request: ContainerRequest) -> None:
    if request.accounts is not None:
        host_process.log_off(request.accounts, host_process.account_of_container(request.id))


def drive_mounts(request: ContainerRequest, version: host_process.Version) -> list[Spec]:
    return bundle.host_process_drive(
        request,
        host_process.mount_point(version, request.id),
        lambda path: host_process.mount_targets(version, request.id, path),
    )
