"""Whether the AppArmor profiles that a pod names are loaded in the machine's kernel."""

from __future__ import annotations

from transom.hosts.api import Files
from transom.machinery import podutil
from transom.machinery.objects import Object

_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_LOCALHOST = "localhost/"
_FREE = ("", "runtime/default", "unconfined")
PROFILES = "/sys/kernel/security/apparmor/profiles"


def problem(pod: Object, files: Files) -> str:
    """Why the pod cannot be run as it asks; empty when it can."""
    annotations = pod["metadata"].get("annotations") or {}
    asked = {k[len(_ANNOTATION):]: v for k, v in annotations.items() if k.startswith(_ANNOTATION) and v != "unconfined"}
    if not asked:
        return ""
    loaded = _loaded(files)
    for container in podutil.containers(pod["spec"]):
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
    """One line for each: `docker-default (enforce)`."""
    if not files.exists(PROFILES):
        return set()
    lines = files.read(PROFILES).decode().splitlines()
    return {line.partition("(")[0].strip() for line in lines if "(" in line}
