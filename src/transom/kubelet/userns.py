"""The user namespaces of pods with `hostUsers: false`: each pod has a range of user and group ids
of the node for itself. The range is in the file `userns` of the pod's directory, so it is free
again when that directory is removed, and a restarted kubelet finds it.
"""

from __future__ import annotations

import json
from typing import Final

from transom.kubelet import paths
from transom.kubelet.base import KubeletContext
from transom.kubelet.config import IDS_PER_POD
from transom.kubelet.failures import ContainerFailure
from transom.kubelet.features import runtime_reports_features
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machines.api import Files
from transom.machines.smallfiles import list_small_directory, read_small_file
from transom.runtime.api import IdRange

_FILE: Final = "userns"
_GATE: Final = "UserNamespacesSupport"
_UNSUPPORTED: Final = "can't set `spec.hostUsers: false`, runtime does not support user namespaces"


def pod_user_namespace(env: KubeletContext, pod: Object) -> IdRange | None:
    """The range of a pod, allocated if it has none yet; None with the users of the node. Raises
    ContainerFailure.
    """
    if pod["spec"].get("hostUsers") is not False or env.os.name != "linux":
        return None
    if not FeatureSet(Release(*env.config.release), env.config.feature_gates).enabled(_GATE):
        return None
    if not runtime_reports_features(env.runtime.version):
        raise ContainerFailure("CreatePodSandboxError", _UNSUPPORTED)
    files = env.host.files
    path = f"{paths.pod_dir(env, pod['metadata']['uid'])}/{_FILE}"
    length = env.config.user_namespace_ids or IDS_PER_POD
    known = _read_range(files, path, length)
    if known is not None:
        return known
    taken = _taken_ranges(env, length)
    # The first range has the ids of the node itself.
    slots = range(1, env.config.max_pods + 1)
    slot = next((n for n in slots if n * length not in taken), None)
    if slot is None:
        raise ContainerFailure(
            "CreatePodSandboxError", "could not find an empty slot to allocate a user namespace"
        )
    found = IdRange(slot * length, length)
    mapping = [{"hostId": found.first, "containerId": 0, "length": found.length}]
    files.mkdir(paths.pod_dir(env, pod["metadata"]["uid"]), 0o750)
    files.write(path, json.dumps({"uidMappings": mapping, "gidMappings": mapping}).encode(), 0o600)
    return found


def _taken_ranges(env: KubeletContext, length: int) -> set[int]:
    files, top = env.host.files, paths.pods_dir(env)
    names = list_small_directory(files, top) if files.exists(top) else ()
    found = (_read_range(files, f"{top}/{uid}/{_FILE}", length) for uid in names)
    return {one.first for one in found if one is not None}


def _read_range(files: Files, path: str, expected: int) -> IdRange | None:
    """None if there is no such file, or if its contents are not what the kubelet writes: a pod with
    a hostPath volume can change it.
    """
    try:
        [mapping] = json.loads(read_small_file(files, path))["uidMappings"]
        first, length = mapping["hostId"], mapping["length"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(first, int) or length != expected:
        return None
    return IdRange(first, length) if first > 0 and first % expected == 0 else None
