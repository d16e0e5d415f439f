"""The AppArmor profiles that a pod names, and whether its machine can enforce them."""

from __future__ import annotations

from transom.machinery import podutil
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.kubelet import kubelet_has
from transom.machines.api import Files
from transom.machines.apparmor import loaded_profiles

_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_LOCALHOST = "localhost/"
_FREE = ("", "runtime/default", "unconfined")


def container_apparmor_profile(pod: Object, container: Object) -> str:
    """The profile of a container, in the format of the annotation: from its own field, that of the
    pod, or the annotation; "" for none.
    """
    for holder in (container, pod["spec"]):
        profile = (holder.get("securityContext") or {}).get("appArmorProfile")
        if profile:
            local = _LOCALHOST + str(profile.get("localhostProfile", ""))
            return {"Localhost": local, "RuntimeDefault": "runtime/default"}.get(
                str(profile.get("type")), "unconfined"
            )
    annotations = pod["metadata"].get("annotations") or {}
    return str(annotations.get(_ANNOTATION + container["name"], ""))


def apparmor_node_problem(pod: Object, files: Files, release: tuple[int, int]) -> str:
    """Why the pod cannot run with these profiles; empty when it can. Newer kubelets leave it to the
    runtime to find a profile that is not loaded.
    """
    for container in podutil.visit_containers(pod["spec"]):
        profile = container_apparmor_profile(pod, container)
        if profile in _FREE:
            continue
        if not profile.startswith(_LOCALHOST):
            return f'invalid AppArmor profile name: "{profile}"'
        name = profile.removeprefix(_LOCALHOST)
        if not kubelet_has(Release(*release), "UncheckedAppArmor") and name not in loaded_profiles(
            files
        ):
            return f'profile "{name}" is not loaded'
    return ""
