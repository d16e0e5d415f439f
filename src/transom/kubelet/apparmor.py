"""Whether the AppArmor profiles that a pod names are loaded in the machine's kernel."""

from __future__ import annotations

from transom.machinery import podutil
from transom.machinery.objects import Object
from transom.machines.api import Files
from transom.machines.smallfiles import read_small_file

_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_LOCALHOST = "localhost/"
_FREE = ("", "runtime/default", "unconfined")
PROFILES = "/sys/kernel/security/apparmor/profiles"


def apparmor_node_problem(pod: Object, files: Files) -> str:
    """Why the pod cannot run with these profiles; empty when it can."""
    annotations = pod["metadata"].get("annotations") or {}
    asked = {
        k[len(_ANNOTATION) :]: v
        for k, v in annotations.items()
        if k.startswith(_ANNOTATION) and v != "unconfined"
    }
    if not asked:
        return ""
    loaded = _loaded(files)
    for container in podutil.visit_containers(pod["spec"]):
        profile = asked.get(container["name"], "")
        if profile in _FREE:
            continue
        if not profile.startswith(_LOCALHOST):
            return f'invalid AppArmor profile name: "{profile}"'
        name = profile.removeprefix(_LOCALHOST)
        if name not in loaded:
            return f'profile "{name}" is not loaded'
    return ""


def _loaded(files: Files) -> set[str]:
    """One line per profile: `docker-default (enforce)`."""
    if not files.exists(PROFILES):
        return set()
    lines = read_small_file(files, PROFILES).decode().splitlines()
    return {line.partition("(")[0].strip() for line in lines if "(" in line}
