"""azureFile: a share of an Azure storage account, mounted over SMB with the key from a Secret."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from transom.client.resources import SECRETS
from transom.cloud.content import ContentError
from transom.cloud.errors import CloudError
from transom.cloud.provider import CloudProvider
from transom.cloud.shares import ShareError
from transom.kubelet import paths
from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.volumes.plugin import (
    MountedVolume,
    PodVolumeSpec,
    VolumeHost,
    VolumePlugin,
    fs_group,
)
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

NAME: Final = "kubernetes.io/azure-file"
_SUFFIX: Final = "file.core.windows.net"
_ACCOUNT, _KEY = "azurestorageaccountname", "azurestorageaccountkey"


async def set_up_azure_file(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    before: MountedVolume | None,
    max_age: float,
) -> MountedVolume:
    env = tools.env
    directory = paths.volume_dir(env, pod["metadata"]["uid"], NAME, spec.name)
    read_only = spec.read_only if spec.persistent is not None else bool(spec.source.get("readOnly"))
    if env.os.disk_mounted(env.host.files, directory):
        return MountedVolume(spec.name, directory, read_only=read_only)
    account, key = await _credentials(tools, pod, spec)
    options = tuple((spec.persistent or {}).get("spec", {}).get("mountOptions") or ())
    try:
        cloud = _cloud(env, account)
        share = cloud.share(f"{account}.{_SUFFIX}", str(spec.source.get("shareName") or ""))
        mappings, now = cloud.smb_mappings(env.config.node_name), env.clock.time()
        used = _options(options, pod, read_only)
        env.os.mount_smb(env.host.files, mappings, share, directory, account, key, used, now)
    except (CloudError, ShareError, ContentError, OSError) as problem:
        raise VolumeFailure(str(problem)) from problem
    return MountedVolume(spec.name, directory, read_only=read_only)


def _cloud(env: KubeletContext, account: str) -> CloudProvider:
    if env.cloud is None:
        raise VolumeFailure(
            f"mount error: could not resolve address for {account}.{_SUFFIX}: Unknown error"
        )
    return env.cloud


async def _credentials(tools: VolumeHost, pod: Object, spec: PodVolumeSpec) -> tuple[str, str]:
    namespace = (spec.source.get("secretNamespace") if spec.persistent else None) or pod[
        "metadata"
    ]["namespace"]
    name = str(spec.source.get("secretName") or "")
    try:
        found = await tools.env.client.get(SECRETS, namespace, name)
    except (ApiError, OSError) as problem:
        raise VolumeFailure(f"Couldn't get secret {namespace}/{name}") from problem
    data = found.get("data") or {}
    try:
        account, key = (
            base64.b64decode(data.get(field) or "").decode() for field in (_ACCOUNT, _KEY)
        )
    except (binascii.Error, UnicodeDecodeError):
        account = key = ""
    if not account or not key:
        raise VolumeFailure(f"Invalid {namespace}/{name}, couldn't extract {_ACCOUNT} or {_KEY}")
    return account.strip(), key


def _options(requested: tuple[str, ...], pod: Object, read_only: bool) -> tuple[str, ...]:
    """The options of mount.cifs, with the plugin's defaults."""
    out = sorted({*requested, *(("ro",) if read_only else ())})
    group = fs_group(pod)
    defaults = [
        ("file_mode", "0777"),
        ("dir_mode", "0777"),
        ("vers", "3.0"),
        ("actimeo", "30"),
        ("mfsymlinks", ""),
    ]
    if group is not None:
        defaults.insert(3, ("gid", str(group)))
    for option, value in defaults:
        if not any(text.startswith(option) for text in out):
            out.append(f"{option}={value}" if value else option)
    return tuple(out)


PLUGIN = VolumePlugin(NAME, set_up_azure_file)
