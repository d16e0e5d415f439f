"""The paths where a kubelet keeps a pod's data."""

from __future__ import annotations

from transom.kubelet.base import KubeletContext
from transom.machinery.objects import Object
from transom.machines.smallfiles import list_small_directory

_MOST_VOLUMES = 100_000  # more than fit into a pod


def pods_dir(env: KubeletContext) -> str:
    return env.os.join(env.config.root_dir, "pods")


def pod_dir(env: KubeletContext, uid: str) -> str:
    return env.os.join(env.config.root_dir, "pods", uid)


def volume_dir(env: KubeletContext, uid: str, plugin: str, name: str) -> str:
    """`plugin` is the name of the plugin: kubernetes.io/secret."""
    return env.os.join(env.config.root_dir, "pods", uid, "volumes", plugin.replace("/", "~"), name)


def volume_names(env: KubeletContext, directory: str) -> list[str]:
    """The volumes of a pod in the directory of their plugin."""
    return list_small_directory(env.host.files, directory, _MOST_VOLUMES)


def plugin_dir(env: KubeletContext, uid: str, plugin: str, name: str) -> str:
    """A plugin's metadata about a volume."""
    return env.os.join(env.config.root_dir, "pods", uid, "plugins", plugin.replace("/", "~"), name)


def device_dir(env: KubeletContext, uid: str, plugin: str) -> str:
    return env.os.join(env.config.root_dir, "pods", uid, "volumeDevices", plugin.replace("/", "~"))


def container_dir(env: KubeletContext, uid: str, container: str) -> str:
    return env.os.join(env.config.root_dir, "pods", uid, "containers", container)


def pod_logs_dir(env: KubeletContext, pod: Object) -> str:
    meta = pod["metadata"]
    return env.os.join(env.config.pod_logs_dir, f"{meta['namespace']}_{meta['name']}_{meta['uid']}")
