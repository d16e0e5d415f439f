"""Checks of pods: why they are not placed, not made, not started, not ready, or do not end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from transom.doctor.findings import Finding, known
from transom.doctor.snapshot import Object, Snapshot, build, condition, key, message, moment, place, seen
from transom.doctor.texts import recognised
from transom.windows.images import build_of
from transom.windows.targeting import verdict
from transom.windows.wording import build_name

_LATE: Final = 120.0  # seconds in which a pod should have been made
_RECENT: Final = 300.0  # seconds after which kubelets would have told again of what is still so
_SLOW_END: Final = 30.0  # seconds beyond its grace
_MAKING: Final = ("ContainerCreating", "PodInitializing")
_TROUBLE: Final = ("FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume", "NetworkNotReady", "FailedCreatePodContainer")
_PULLING: Final = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable",
                   "ErrImageInspect")  # fmt: skip
_NO_IMAGE: Final = ("WIN-OS-005", "WIN-OS-006")
# What the scheduler says of the nodes it refused -> what to do about it.
_REFUSALS: Final[tuple[tuple[str, str], ...]] = (
    (r"Insufficient|Too many pods", "Lower the pod's requests, remove other pods, or add nodes."),
    (r"had taint|had untolerated taint", "Let the pod tolerate the taint, or take it from a node."),
    (r"didn't match .*(selector|affinity)", "Compare the pod's nodeSelector and affinity with the labels of the nodes."),
    (r"volume node affinity|unbound immediate|persistentvolumeclaim", "Look at the claims that the pod uses."),
    (r"free ports", "Choose another hostPort, or let fewer of them run on a node."),
    (r"unschedulable", "Uncordon a node."),
    (r"topology spread|anti-affinity", "Loosen the constraint, or add nodes."),
)  # fmt: skip
# Reason of a waiting container -> why it matters is the same for all; what to do.
_STARTS: Final[Mapping[str, str]] = {
    "CreateContainerConfigError": "Make the ConfigMap, Secret or key that it names, or correct the name.",
    "CreateContainerError": "Change what the message names in the container's spec.",
    "RunContainerError": "Check the container's command, and that its image has it.",
    "PostStartHookError": "Look at the container's postStart hook.",
}


def pods(s: Snapshot) -> Iterator[Finding]:
    for pod in s.pods:
        yield from _pod(s, pod)


def _pod(s: Snapshot, pod: Object) -> Iterator[Finding]:
    where, status, spec = place("pod", pod), pod.get("status") or {}, pod.get("spec") or {}
    ends = moment(pod["metadata"].get("deletionTimestamp") or "")
    if ends:
        if s.now - ends > _SLOW_END:
            yield Finding("warning", "does not end", (where,), "Its name and its volumes stay in use.",
                          "Check that its node runs, and look for finalizers.")  # fmt: skip
        return
    if status.get("phase") == "Failed":
        told = ": ".join(filter(None, (status.get("reason"), status.get("message")))) or _ended(pod)
        yield Finding("warning", f"has failed{': ' if told else ''}{told}", (where,), "It is not started again.",
                      "Read its log (kubectl logs), then delete it.")  # fmt: skip
        return
    if not spec.get("nodeName"):
        yield from _unplaced(s, pod, where)
        return
    found = False
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        for one in _container(s, pod, container, where):
            found = True
            yield one
    if not found and not status.get("containerStatuses") and status.get("phase") == "Pending":
        yield from _not_made(s, pod, "ContainerCreating", where)
    elif not found and status.get("phase") == "Running" and condition(pod, "Ready").get("status") == "False":
        yield from _unready(s, pod, where)


def _unplaced(s: Snapshot, pod: Object, where: str) -> Iterator[Finding]:
    placed = condition(pod, "PodScheduled")
    if placed.get("status") == "False":
        text = str(placed.get("message", ""))
        remedy = next((what for pattern, what in _REFUSALS if re.search(pattern, text)), "")
        ask = "transom explain-schedule NAMESPACE/POD tells more."
        yield Finding("error", f"no node takes it: {text}", (where,), "It waits until a node does.", f"{remedy} {ask}".strip())
    elif s.now - moment(pod["metadata"].get("creationTimestamp", "")) > _SLOW_END:
        called = (pod.get("spec") or {}).get("schedulerName", "default-scheduler")
        yield Finding("error", "no scheduler has looked at it", (where,), "It waits until one does.",
                      f"Check that the scheduler {called} runs.")  # fmt: skip


def _container(s: Snapshot, pod: Object, container: Object, where: str) -> Iterator[Finding]:
    state = container.get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    reason = str(waiting.get("reason", ""))
    if reason in _MAKING:
        yield from _not_made(s, pod, reason, where)
    elif reason in _PULLING:
        text = _newest(s, pod, "Failed", containing=str(container.get("image", ""))) or str(waiting.get("message", ""))
        what = f"image {container.get('image')} cannot be pulled: {text}"
        yield _windows(s, pod, "ErrImagePull", text, what, where) or Finding(
            "error", what, (where,), "The container cannot be started.",
            "Check the image's name and tag, the registry, and imagePullSecrets.",
        )  # fmt: skip
    elif reason == "CrashLoopBackOff":
        last = (container.get("lastState") or {}).get("terminated") or {}
        yield _crashed(s, pod, container, last, where)
    elif reason:
        text = str(waiting.get("message", ""))
        what = f"container {container['name']} does not start: {reason}: {text}"
        yield _windows(s, pod, reason, text, what, where) or Finding(
            "error", what, (where,), "The pod does not work without it.", _STARTS.get(reason, "Do what the message asks for.")
        )
    elif ended and ended.get("exitCode"):
        yield _crashed(s, pod, container, ended, where)


def _crashed(s: Snapshot, pod: Object, container: Object, last: Object, where: str) -> Finding:
    text = _plain(str(last.get("message", "")))
    if last.get("reason") == "OOMKilled":
        how, remedy = "was killed for using more memory than its limit", "Raise its memory limit, or let it use less."
    else:
        how = f"ended with exit code {last['exitCode']}" if "exitCode" in last else "ends"
        remedy = f"Read what it said before it ended: kubectl logs POD --container {container['name']} --previous"
    what = f"container {container['name']} {how}" + (f": {text}" if text else "")
    return _windows(s, pod, "CrashLoopBackOff", text, what, where) or Finding(
        "error", what, (where,), "It is started again and again, ever later.", remedy
    )


def _not_made(s: Snapshot, pod: Object, reason: str, where: str) -> Iterator[Finding]:
    told_of = s.warnings("Pod", *key(pod), *_TROUBLE, uid=pod["metadata"].get("uid", ""))
    events = [event for event in told_of if s.now - seen(event) < _RECENT]
    age = s.now - moment(pod["metadata"].get("creationTimestamp", ""))
    if events:
        told, text = str(events[0].get("reason", "")), message(events[0])
        what = f"is not made: {told}: {_plain(text)}"
        yield _windows(s, pod, told, text, what, where) or Finding(
            "error", what, (where,), "Its containers wait for it.", "Do what the message asks for."
        )
    elif age > _LATE:
        yield Finding("warning", f"is {reason} for more than {int(_LATE)} seconds", (where,), "Its containers do not run.",
                      "Read its events: kubectl describe pod POD")  # fmt: skip


def _unready(s: Snapshot, pod: Object, where: str) -> Iterator[Finding]:
    text = _newest(s, pod, "Unhealthy")
    if text:
        yield Finding("warning", f"is not ready: {text}", (where,), "Services do not send to it.",
                      "Check the probe, and what the container answers to it.")  # fmt: skip


def _ended(pod: Object) -> str:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        last = (container.get("state") or {}).get("terminated") or {}
        if last.get("exitCode"):
            return f"container {container['name']} ended with exit code {last['exitCode']}"
    return ""


def _newest(s: Snapshot, pod: Object, *reasons: str, containing: str = "") -> str:
    """The message that says most: pulls are followed by events that only repeat that they failed."""
    texts = [message(event) for event in s.warnings("Pod", *key(pod), *reasons)]
    telling = [text for text in texts if not text.startswith("Error: ") and containing in text]
    return _plain(next(iter(telling or texts), ""))


def _plain(text: str) -> str:
    """Without what is said already, and what is another one each time: ids of sandboxes and of containers."""
    text = re.sub(r'^(?:Failed to pull image "[^"]*"|Failed to create pod sandbox): (?:rpc error: code = \w+ desc = )?', "",
                  " ".join(text.split()))  # fmt: skip
    return re.sub(r"\b[0-9a-f]{64}\b", "...", re.sub(r" \(extra info: \{.*\}\)", "", text))


def _windows(s: Snapshot, pod: Object, reason: str, text: str, what: str, where: str) -> Finding | None:
    if not s.on_windows(pod):
        return None
    found = recognised(reason, text, what, where)
    if found is not None and found.record in _NO_IMAGE and not verdict(pod).windows:
        return known("WIN-OS-007", what, where)  # it was never meant for Windows
    if found is not None and found.record in (*_NO_IMAGE, "WIN-OS-004"):
        return found._replace(why=f"{_builds(s, pod)}{found.why}")
    return found


def _builds(s: Snapshot, pod: Object) -> str:
    """Which builds do not go together, as far as names of images tell."""
    host = build(s.node[pod["spec"]["nodeName"]])
    images = [str(container.get("image", "")) for container in pod["spec"]["containers"]]
    others = [(image, found.number) for image in images if (found := build_of(image)) is not None and found.number != host]
    told = (f"{image} is of build {build_name(number)}, the node of {build_name(host)}. " for image, number in others)
    return "".join(told) if host else ""
