"""What the events and statuses of a pod report: the newest message, its cause, and the Windows
limitation that it indicates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from transom.doctor import causes, repairs
from transom.doctor.findings import DoctorFinding, known_finding
from transom.doctor.pod_causes import POD_CAUSES
from transom.doctor.pod_volumes import (
    emulated_share,
    flex_driver_remedy,
    multi_attach_remedy,
    volume_values,
)
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    event_message,
    event_time,
    is_windows_node,
    key_of_object,
    name_of_object,
    reported_windows_build,
)
from transom.doctor.storage import explain_cloud
from transom.doctor.texts import recognised_texts
from transom.machinery.podutil import visit_containers
from transom.windows.images import image_build_of, image_os
from transom.windows.limits import LIMITS
from transom.windows.podchecks import host_process
from transom.windows.targeting import find_target_os
from transom.windows.wording import build_name

# seconds after which a kubelet would have repeated the event of a persistent failure
RECENT: Final = 300.0
_MISSING: Final = re.compile(r'(configmap|secret)s? "([^"]+)" not found')
_VOLUME: Final = re.compile(r'for volume "([^"]+)"')
_NO_IMAGE: Final = ("WIN-OS-005", "WIN-OS-006")


def init_and_containers(pod: Object) -> Sequence[Object]:
    return visit_containers(pod.get("spec") or {}, ephemeral=False)


def single_string_command(pod: Object, container: str) -> str:
    """The command of a container that is one string with several words; "" for others."""
    spec: Object = next((c for c in init_and_containers(pod) if c.get("name") == container), {})
    words = [str(word) for word in spec.get("command") or ()]
    return words[0] if len(words) == 1 and " " in words[0].strip() else ""


def split_command_cause(
    s: ClusterSnapshot, pod: Object, container: str, line: str
) -> causes.ExplainedCause:
    words = ", ".join(f'"{word}"' for word in line.split())
    return causes.ExplainedCause(
        f'its command is the single string "{line}", and no program has this name',
        f"Write each word as a string of its own: command: [{words}]",
        "",
        repairs.change_container(s, pod, container, {"command": line.split()}),
    )


def is_host_process(pod: Object, container: str) -> bool:
    spec: Object = next((c for c in init_and_containers(pod) if c.get("name") == container), {})
    for holder in (spec, pod.get("spec") or {}):
        options = (holder.get("securityContext") or {}).get("windowsOptions") or {}
        if "hostProcess" in options:
            return bool(options["hostProcess"])
    return False


def explained_cause(
    s: ClusterSnapshot, pod: Object, reason: str, text: str, container: str = "", image: str = ""
) -> causes.ExplainedCause | None:
    namespace, called = key_of_object(pod)
    node = str((pod.get("spec") or {}).get("nodeName", ""))
    os = "" if node not in s.node else "windows" if is_windows_node(s.node[node]) else "linux"
    values = {
        "namespace": namespace,
        "pod": called,
        "node": node,
        "container": container,
        "image": image,
        **volume_values(s, pod, text),
    }
    found = causes.explain_text(POD_CAUSES, reason, text, os, values)
    if found is not None and found.record == "WIN-POD-010" and image_os(image) != "windows":
        return causes.ExplainedCause(
            f"the image {image} has no variant for the operating system and architecture of node {node}",
            "Use an image for the node's platform, or select other nodes with kubernetes.io/os and kubernetes.io/arch.",
            "",
        )
    if found is not None and found.record == "WIN-SEC-018" and is_host_process(pod, container):
        return causes.ExplainedCause(
            f"node {node} has no account of the name in runAsUserName",
            "Use NT AUTHORITY\\SYSTEM, NT AUTHORITY\\Local service, NT AUTHORITY\\NetworkService or a local group of "
            "the node in windowsOptions.runAsUserName.",
            "",
        )
    if found is None:
        return None
    found = found._replace(commands=_commands(s, pod, found, text, container))
    if "no volume plugin matched" in text:
        return found._replace(remedy=flex_driver_remedy(s, pod, text) or found.remedy)
    if "Multi-Attach error" in text:
        return found._replace(remedy=multi_attach_remedy(s, pod, text) or found.remedy)
    if found.cause == "the server of a share does not answer" and s.inside:
        return found._replace(remedy=found.remedy + emulated_share(text))
    if reason == "FailedAttachVolume":
        return explain_cloud(s, node, text, found)
    return found


def _commands(
    s: ClusterSnapshot, pod: Object, found: causes.ExplainedCause, text: str, container: str
) -> tuple[str, ...]:
    if found.change:
        change = json.loads(found.change)
        if "container" in change:
            return repairs.change_container(s, pod, container, change["container"])
        return repairs.change_pod(s, pod, change)
    if missing := _MISSING.search(text):
        kind = "ConfigMap" if missing[1] == "configmap" else "Secret"
        return repairs.create_configuration(pod, kind, missing[2])
    return found.commands


def cause_finding(found: causes.ExplainedCause, what: str, where: str, why: str) -> DoctorFinding:
    if found.record:
        return known_finding(
            found.record, what, where, remedy=found.remedy, commands=found.commands
        )
    return DoctorFinding("error", what, (where,), why, found.remedy, commands=found.commands)


def has_recent_warning(s: ClusterSnapshot, pod: Object, *reasons: str) -> bool:
    return any(s.now - event_time(event) < RECENT for event in s.warnings_of("Pod", pod, *reasons))


def newest_message(s: ClusterSnapshot, pod: Object, *reasons: str, containing: str = "") -> str:
    """The most informative message: later events of a pull only repeat that it failed."""
    texts = [event_message(event) for event in s.warnings_of("Pod", pod, *reasons)]
    relevant = [
        text
        for text in texts
        if not text.startswith("Error: ") and containing in text and "QPS exceeded" not in text
    ]
    return plain_message(next(iter(relevant or texts), ""))


_PREFIX: Final = re.compile(
    r'^(?:Failed to pull image "[^"]*"|Failed to create pod sandbox|MountVolume\.\w+ failed '
    r'for volume "[^"]*" ?): '
    r"(?:rpc error: code = \w+ desc = )?"
)
_IDS: Final = re.compile(
    r"\b[0-9a-f]{64}\b|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)


def plain_message(text: str) -> str:
    """Removes repetitions and varying parts: ids of pods, sandboxes and containers."""
    text = _PREFIX.sub("", " ".join(text.split())).removeprefix("rpc error: code = Unknown desc = ")
    text = re.sub(
        r' \(pod: "[^"]*", container: [^)]*\)', "", re.sub(r" \(extra info: \{.*\}\)", "", text)
    )
    return _IDS.sub("...", text)


def windows_finding(
    s: ClusterSnapshot, pod: Object, reason: str, text: str, what: str, where: str
) -> DoctorFinding | None:
    """The record of the Windows limitation that a Windows node's text indicates."""
    if not s.on_windows(pod):
        return None
    if reason in ("FailedMount", "FailedAttachVolume") and _is_for_linux_only(s, pod, text):
        return known_finding("WIN-STO-011", what, where)
    found = recognised_texts(reason, text, what, where)
    if found is not None and not _can_apply(found.record, pod):
        return None
    if found is not None and found.record == "WIN-POD-002" and host_process(pod["spec"]):
        return known_finding("WIN-HP-108", what, where)
    if found is not None and _has_both_systems(pod, found.record):
        return known_finding(
            "WIN-POD-001",
            what,
            where,
            remedy="Remove the containers for Linux, or exclude Windows pods from the webhook that "
            "injects them. Use two pods that communicate through a Service.",
        )
    if found is not None and found.record in _NO_IMAGE and _for_linux(pod):
        return known_finding("WIN-OS-007", what, where)
    if found is not None and found.record in (*_NO_IMAGE, "WIN-OS-004"):
        return found._replace(why=f"{_builds(s, pod)}{found.why}")
    return found


def _can_apply(record: str, pod: Object) -> bool:
    """Whether the pod uses what a record is about; other causes have the same text."""
    spec = pod.get("spec") or {}
    if record == "WIN-POD-002":
        return bool(spec.get("hostNetwork"))
    if record == "WIN-STO-017":
        paths = [
            (volume.get("hostPath") or {}).get("path", "") for volume in spec.get("volumes") or ()
        ]
        return any(str(path).startswith("/") for path in paths)
    return True


def _is_for_linux_only(s: ClusterSnapshot, pod: Object, text: str) -> bool:
    """Whether the volume that a text names is of a kind that Windows nodes cannot mount."""
    named = _VOLUME.search(text)
    if named is None:
        return False
    volumes = [
        volume
        for volume in (pod.get("spec") or {}).get("volumes") or ()
        if volume.get("name") == named[1]
    ] + [
        one.get("spec") or {}
        for one in s.of("persistentvolumes")
        if name_of_object(one) == named[1]
    ]
    kinds = {field.path.rpartition(".")[2] for field in LIMITS["WIN-STO-011"].fields}
    return any(kinds & volume.keys() for volume in volumes)


def _has_both_systems(pod: Object, record: str) -> bool:
    """Whether the image that a text is about is for Linux, and another one of the pod for Windows."""
    images = {image_os(str(container.get("image", ""))) for container in init_and_containers(pod)}
    linux = record == "WIN-OS-007" or (record in _NO_IMAGE and "linux" in images)
    return linux and "windows" in images


def _for_linux(pod: Object) -> bool:
    """Whether the pod or one of its images is not meant for Windows."""
    images = {image_os(str(container.get("image", ""))) for container in init_and_containers(pod)}
    return not find_target_os(pod).windows or "linux" in images


def _builds(s: ClusterSnapshot, pod: Object) -> str:
    """The builds that do not match, as far as image names show them."""
    host = reported_windows_build(s.node[pod["spec"]["nodeName"]])
    images = [str(container.get("image", "")) for container in pod["spec"]["containers"]]
    others = [
        (image, found.number)
        for image in images
        if (found := image_build_of(image)) is not None and found.number != host
    ]
    parts = (
        f"{image} is of build {build_name(number)}, the node of {build_name(host)}. "
        for image, number in others
    )
    return "".join(parts) if host else ""
