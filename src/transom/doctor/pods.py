"""Checks of pods: not scheduled, not created, not started, not ready, restarting, failed, or not
ending.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from transom.doctor import causes, repairs
from transom.doctor.findings import DoctorFinding, known_finding
from transom.doctor.pod_logs import explained_log
from transom.doctor.pod_messages import (
    RECENT,
    cause_finding,
    explained_cause,
    init_and_containers,
    newest_message,
    plain_message,
    single_string_command,
    split_command_cause,
    windows_finding,
)
from transom.doctor.pod_volumes import is_outdated
from transom.doctor.probes import (
    EXIT_CODES,
    LATE,
    explained_probe,
    explains_end,
    killed_by_probe,
    probes_without_result,
    unready,
)
from transom.doctor.references import pull_secret_problems, pull_secret_remedy
from transom.doctor.scheduling import unscheduled
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    event_message,
    event_time,
    key_of_object,
    place_of_object,
    status_condition,
    time_of,
)

_KUBELET: Final = re.compile(r"v1\.(\d+)\.")
_SLOW_END: Final = 30.0  # seconds beyond its grace period
_CREATING: Final = ("ContainerCreating", "PodInitializing")
_TROUBLE: Final = (
    "FailedCreatePodSandBox",
    "FailedMount",
    "FailedAttachVolume",
    "FailedMapVolume",
    "NetworkNotReady",
    "FailedCreatePodContainer",
    "FailedPodSandBoxStatus",
)
_PROGRESS: Final = ("Pulling", "Pulled", "Created", "Started")
_PULL_ENDS: Final = ("Pulled", "Failed", "BackOff")
_PULLING: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "RegistryUnavailable",
    "ErrImageInspect",
    "ImageInspectError",
)
_SIMULATED: Final = "sim.transom.dev/"
_SHELLS: Final = ("sh", "bash", "/bin/sh", "/bin/bash", "ash", "/usr/bin/env")
_NOT_STARTED: Final = "The pod does not work without it."
# Reason of a waiting container -> remedy if the text has no row of its own.
_STARTS: Final[Mapping[str, str]] = {
    "CreateContainerConfigError": "Correct what the message names in the container's spec.",
    "CreateContainerError": "Correct what the message names in the container's spec.",
    "RunContainerError": "Check the container's command, and that its image has it.",
    "PostStartHookError": "Correct the container's postStart hook: it must succeed.",
}
_OWN_LIMIT: Final = re.compile(
    r"exceeds the (?:total )?limit|exceeded its local ephemeral storage limit"
)
_LONG_INIT: Final = 300.0  # seconds that an init container may run without being reported
_CREDENTIALS: Final = re.compile(
    r"unauthorized|authentication required|no basic auth|denied|insufficient_scope", re.IGNORECASE
)
_MANY_RESTARTS: Final = 3  # one or two may be reboots of the node
_EXITS: Final[Mapping[int, str]] = {  # codes with the same meaning everywhere
    126: "the command is not executable",
    127: "the command was not found",
    137: "it was killed (SIGKILL)",
    139: "it crashed (segmentation fault)",
    143: "it was terminated (SIGTERM)",
    3221225477: "access violation (0xC0000005)",
    3221225781: "a DLL was not found (0xC0000135)",
    3221225786: "it was ended by Ctrl-C or a close event (0xC000013A)",
    3221225794: "a DLL failed to initialize (0xC0000142)",
    3221225595: "the program is for another architecture (0xC000007B)",
    3221226505: "stack buffer overrun (0xC0000409)",
}


def check_pods(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for pod in s.pods:
        yield from _pod(s, pod)


def _pod(s: ClusterSnapshot, pod: Object) -> Iterator[DoctorFinding]:
    where, status, spec = (
        place_of_object("pod", pod),
        pod.get("status") or {},
        pod.get("spec") or {},
    )
    ends = time_of(pod["metadata"].get("deletionTimestamp") or "")
    if ends:
        if s.now - ends > _SLOW_END:
            yield _does_not_end(s, pod, where)
        return
    if status.get("phase") == "Failed":
        yield from _failed(s, pod, where)
        return
    if not spec.get("nodeName"):
        yield from unscheduled(s, pod)
        return
    if status.get("phase") == "Pending" and status.get("reason") in causes.ENDED:
        yield from _failed(s, pod, where)
        return
    if spec["nodeName"] not in s.node and "nodes" not in s.unread:
        yield DoctorFinding(
            "error",
            f"is on node {spec['nodeName']}, which does not exist",
            (where,),
            "No kubelet runs it.",
            "Correct spec.nodeName, or leave it to the scheduler, and create the pod again.",
        )
        return
    found = False
    for container in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        for one in _container(s, pod, container, where):
            found = True
            yield one
    if found:
        return
    if not status.get("containerStatuses") and status.get("phase") == "Pending":
        yield from _not_created(s, pod, "ContainerCreating", where)
    elif status.get("phase") == "Running":
        if status_condition(pod, "Ready").get("status") == "False":
            yield from unready(s, pod, where)
        else:
            yield from probes_without_result(s, pod, where)


def _does_not_end(s: ClusterSnapshot, pod: Object, where: str) -> DoctorFinding:
    node, why = (pod.get("spec") or {}).get("nodeName", ""), "Its name and its volumes stay in use."
    finalizers = pod["metadata"].get("finalizers") or ()
    grace = f"kubectl delete pod {key_of_object(pod)[1]} --namespace {key_of_object(pod)[0]} --grace-period=0 --force"
    if finalizers:
        return DoctorFinding(
            "warning",
            f"is not deleted: it has the finalizers {', '.join(finalizers)}",
            (where,),
            why,
            (
                "The controller that set a finalizer removes it; check that controller, or "
                "remove the finalizer."
            ),
        )
    if node and node not in s.node:
        return DoctorFinding(
            "warning", f"is not deleted: its node {node} does not exist", (where,), why, grace
        )
    if node and status_condition(s.node[node], "Ready").get("status") != "True":
        return DoctorFinding(
            "warning",
            f"is not deleted: its node {node} is not Ready",
            (where,),
            why,
            f"Start the node; if it is lost: {grace}",
        )
    if node and _keeps_sub_paths(s.node[node], pod):
        restart = f"transom node exec {node} -- Restart-Service kubelet"
        return DoctorFinding(
            "warning",
            "is not deleted: a container has several subPath mounts, whose directories the kubelet "
            "keeps open",
            (where,),
            "Before 1.37 the kubelet of a Windows node closes the last one only, and cannot remove "
            "the volume (kubernetes/kubernetes#112630).",
            f"Restart the kubelet on {node}, and mount the whole volume instead.",
            "WIN-STO-001",
            commands=(restart,),
        )
    event = newest_message(s, pod, "FailedKillPod", "FailedPreStopHook", "ExceededGracePeriod")
    return DoctorFinding(
        "warning",
        "is not deleted" + (f": {event}" if event else ""),
        (where,),
        why,
        f"Look at the kubelet's log on {node}; then: {grace}",
    )


def _keeps_sub_paths(node: Object, pod: Object) -> bool:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    version = _KUBELET.match(str(info.get("kubeletVersion") or ""))
    if info.get("operatingSystem") != "windows" or version is None or int(version[1]) >= 37:
        return False
    spec = pod.get("spec") or {}
    return any(
        sum(bool(m.get("subPath") or m.get("subPathExpr")) for m in c.get("volumeMounts") or ()) > 1
        for c in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    )


def _failed(s: ClusterSnapshot, pod: Object, where: str) -> Iterator[DoctorFinding]:
    status = pod.get("status") or {}
    if any(owner.get("kind") == "Job" for owner in pod["metadata"].get("ownerReferences") or ()):
        return  # the Job counts them, and is reported when it gives up
    reason, text = str(status.get("reason") or ""), str(status.get("message") or "")
    node = str((pod.get("spec") or {}).get("nodeName", ""))
    short = reason.removeprefix("OutOf") if reason.startswith(("OutOf", "Outof")) else ""
    if short:
        cause = (
            f"was refused by its kubelet: node {node} does not have enough {short.lower()}",
            (
                "Lower its requests, or leave spec.nodeName to the scheduler; then create the "
                "pod again."
            ),
        )
    else:
        cause = causes.ENDED.get(reason, ("", ""))
    if reason == "Evicted" and _OWN_LIMIT.search(text):
        cause = (
            "was evicted by its kubelet",
            "Raise the limit (sizeLimit of the emptyDir, or limits.ephemeral-storage), or write less; then delete the pod.",
        )
    if cause[0]:
        what = cause[0].format(node=node)
        yield windows_finding(
            s, pod, reason, text, f"{what}: {text}" if text else what, where
        ) or DoctorFinding(
            "error" if reason != "Evicted" else "warning",
            f"{what}: {text}" if text else what,
            (where,),
            "It is not started again.",
            cause[1].format(node=node),
        )
        return
    why = ": ".join(filter(None, (reason, text))) or _ended(pod)
    yield DoctorFinding(
        "warning",
        f"has failed{': ' if why else ''}{why}",
        (where,),
        "It is not started again.",
        f"Read its log (kubectl logs {key_of_object(pod)[1]} --namespace {key_of_object(pod)[0]}), then delete it.",
    )


# ---- containers ----


def _container(
    s: ClusterSnapshot, pod: Object, container: Object, where: str
) -> Iterator[DoctorFinding]:
    state = container.get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    reason = str(waiting.get("reason", ""))
    if reason in _CREATING:
        if not _before(pod, container):
            yield from _not_created(s, pod, reason, where)
    elif reason in _PULLING:
        yield _not_pulled(s, pod, container, reason, where)
    elif reason == "CrashLoopBackOff":
        yield _crashed(
            s, pod, container, (container.get("lastState") or {}).get("terminated") or {}, where
        )
    elif reason:
        yield _not_started(s, pod, container, reason, str(waiting.get("message", "")), where)
    elif ended and ended.get("exitCode"):
        yield _crashed(s, pod, container, ended, where)
    elif _keeps_restarting(s, pod, container):
        yield _crashed(s, pod, container, container["lastState"]["terminated"], where)
    elif _runs_long(s, pod, container):
        namespace, called = key_of_object(pod)
        yield DoctorFinding(
            "info",
            f"init container {container['name']} still runs; the pod waits for it",
            (where,),
            "The containers of the pod are not started before it has ended.",
            f"Read its log: kubectl logs {called} --namespace {namespace} --container {container['name']}",
        )


def _keeps_restarting(s: ClusterSnapshot, pod: Object, container: Object) -> bool:
    """Whether a container that runs now was restarted a moment ago by a probe, or repeatedly."""
    last = (container.get("lastState") or {}).get("terminated") or {}
    restarts = int(container.get("restartCount") or 0)
    recent = s.now - time_of(str(last.get("finishedAt") or "")) < RECENT
    if not restarts or not recent or _ended_with_machine(s, pod, container):
        return False
    return bool(killed_by_probe(s, pod, str(container.get("name", "")), last)) or (
        restarts >= _MANY_RESTARTS and bool(last.get("exitCode"))
    )


def _ended_with_machine(s: ClusterSnapshot, pod: Object, container: Object) -> bool:
    """Whether its node was started again after the container's last end."""
    last = (container.get("lastState") or {}).get("terminated") or {}
    running = (container.get("state") or {}).get("running") or {}
    node = (pod.get("spec") or {}).get("nodeName")
    begin, end = (
        time_of(str(text or "")) for text in (last.get("finishedAt"), running.get("startedAt"))
    )
    return any(
        about.get("kind") == "Node"
        and about.get("name") == node
        and event.get("reason") in ("Starting", "Rebooted")
        and begin - 1 <= event_time(event) <= end + 1
        for event in s.of("events")
        if (about := event.get("involvedObject") or {})
    )


def _runs_long(s: ClusterSnapshot, pod: Object, container: Object) -> bool:
    """Whether an ordinary init container has been running for minutes; sidecars (restartPolicy
    Always) are expected to.
    """
    spec: Object = next(
        (c for c in pod["spec"].get("initContainers") or () if c["name"] == container["name"]), {}
    )
    running = (container.get("state") or {}).get("running") or {}
    if not spec or not running or spec.get("restartPolicy") == "Always":
        return False
    return s.now - time_of(str(running.get("startedAt") or "")) > _LONG_INIT


def _before(pod: Object, container: Object) -> bool:
    """Whether a container waits for an init container, which has its own finding."""
    inits = (pod.get("status") or {}).get("initContainerStatuses") or ()
    return container not in inits and any(
        not (one.get("state") or {}).get("terminated")
        or (one["state"]["terminated"].get("exitCode"))
        for one in inits
    )


def _not_pulled(
    s: ClusterSnapshot, pod: Object, container: Object, reason: str, where: str
) -> DoctorFinding:
    image, waiting = (
        str(container.get("image", "")),
        (container.get("state") or {}).get("waiting") or {},
    )
    image = next(
        (c["image"] for c in init_and_containers(pod) if c.get("name") == container.get("name")),
        image,
    )
    image = _unpulled_volume(s, pod, image) or image
    text = newest_message(
        s, pod, "Failed", "InspectFailed", "ErrImageNeverPull", containing=image
    ) or plain_message(str(waiting.get("message", "")))
    annotations = pod["metadata"].get("annotations") or {}
    if f"{_SIMULATED}fail-pull" in annotations:
        return DoctorFinding(
            "error",
            (
                f"image {image} cannot be pulled: an annotation {_SIMULATED}fail-* makes pulls "
                f"fail ({text})"
            ),
            (where,),
            "The container cannot be started.",
            "Remove the annotation and create the pod again.",
        )
    found = explained_cause(
        s,
        pod,
        "ErrImagePull" if reason == "ImagePullBackOff" else reason,
        text,
        container.get("name", ""),
        image,
    )
    what = (
        f"image {image} cannot be pulled: {found.cause} ({text})"
        if found
        else f"image {image} cannot be pulled: {text}"
    )
    secrets = pull_secret_problems(s, pod)
    if secrets and _CREDENTIALS.search(text):
        return DoctorFinding(
            "error",
            f"image {image} cannot be pulled: {secrets[0]} ({text})",
            (where,),
            "The container cannot be started.",
            pull_secret_remedy(s, pod),
        )
    # On a Windows node, an image without a matching platform has its own records.
    windows = windows_finding(
        s, pod, "ErrImagePull", text, f"image {image} cannot be pulled: {text}", where
    )
    if windows is not None:
        if windows.record == "WIN-OS-007":
            linux = {"nodeSelector": {"kubernetes.io/os": "linux"}}
            return windows._replace(commands=repairs.change_pod(s, pod, linux))
        if windows.record == "WIN-POD-001":
            return windows
        return windows._replace(
            commands=repairs.use_image_of_build(
                s, pod, str(container["name"]), image, str(pod["spec"].get("nodeName", ""))
            )
        )
    if found is not None:
        return cause_finding(found, what, where, "The container cannot be started.")
    return DoctorFinding(
        "error",
        what,
        (where,),
        "The container cannot be started.",
        "Check the image's name and tag, the registry, and imagePullSecrets.",
    )


def _unpulled_volume(s: ClusterSnapshot, pod: Object, image: str) -> str:
    """The image of an image volume that cannot be pulled; "" if the container's own image cannot."""
    references = [
        str(volume["image"].get("reference") or "")
        for volume in (pod.get("spec") or {}).get("volumes") or ()
        if volume.get("image")
    ]
    if not references or newest_message(s, pod, "Failed", containing=f'"{image}"').count(image):
        return ""
    texts = [event_message(event) for event in s.warnings_of("Pod", pod, "Failed")]
    return next((one for one in references if any(f'"{one}"' in text for text in texts)), "")


def _not_started(
    s: ClusterSnapshot, pod: Object, container: Object, reason: str, text: str, where: str
) -> DoctorFinding:
    plain, called = plain_message(text), container["name"]
    what = f"container {called} cannot start: {reason}: {plain}"
    found = explained_cause(s, pod, reason, text, called, str(container.get("image", "")))
    if found is not None and (line := single_string_command(pod, called)) in found.cause:
        found = split_command_cause(s, pod, called, line) if line else found
    windows = windows_finding(s, pod, reason, text, what, where)
    if found is not None and (windows is None or found.record):
        return cause_finding(
            found,
            f"container {called} cannot start: {found.cause} ({reason}: {plain})",
            where,
            _NOT_STARTED,
        )
    if windows is not None:
        return windows
    return DoctorFinding(
        "error",
        what,
        (where,),
        _NOT_STARTED,
        _STARTS.get(reason, "Correct what the message names."),
    )


def _crashed(
    s: ClusterSnapshot, pod: Object, container: Object, last: Object, where: str
) -> DoctorFinding:
    text, called = plain_message(str(last.get("message", ""))), container["name"]
    namespace, pod_name = key_of_object(pod)
    why = "It keeps restarting with increasing back-off."
    logs = f"kubectl logs {pod_name} --namespace {namespace} --container {called} --previous"
    if last.get("reason") == "OOMKilled":
        limit = next(
            (
                (c.get("resources") or {}).get("limits", {}).get("memory")
                for c in init_and_containers(pod)
                if c["name"] == called
            ),
            None,
        )
        return DoctorFinding(
            "error",
            f"container {called} was killed: it used more memory than its limit"
            + (f" of {limit}" if limit else ""),
            (where,),
            why,
            "Raise its memory limit, or make it use less.",
            commands=repairs.double_memory(s, pod, called, limit),
        )
    started = last.get("reason") in ("ContainerCannotRun", "StartError")
    if started and text:
        found = explained_cause(
            s, pod, "CrashLoopBackOff", text, called, str(container.get("image", ""))
        )
        what = f"container {called} cannot start: {text}"
        windows = windows_finding(s, pod, "CrashLoopBackOff", text, what, where)
        if found is not None and (line := single_string_command(pod, called)) in found.cause:
            found = split_command_cause(s, pod, called, line) if line else found
        if s.on_windows(pod) and "cannot find the file specified" in text:
            return _no_command(s, pod, called, text, where)
        if found is not None and (windows is None or found.record):
            return cause_finding(
                found, f"container {called} cannot start: {found.cause} ({text})", where, why
            )
        return windows or DoctorFinding(
            "error",
            what,
            (where,),
            why,
            "Check the container's command, and that its image has it.",
        )
    killed = killed_by_probe(s, pod, called, last)
    if killed:
        found = explained_probe(s, pod, killed)
        return cause_finding(
            found,
            f"container {called} is restarted: {found.cause} ({killed})"
            if found.cause
            else f"container {called} is restarted: {killed}",
            where,
            why,
        )
    hook = next(iter(s.warnings_of("Pod", pod, "FailedPostStartHook")), None)
    if hook is not None and explains_end(s, hook, last):
        return DoctorFinding(
            "error",
            f"container {called} is restarted: its postStart hook fails: {plain_message(event_message(hook))}",
            (where,),
            why,
            "Correct the container's postStart hook: it must succeed.",
        )
    code: int | None = last.get("exitCode")
    if code == 0:
        return DoctorFinding(
            "error",
            f"container {called} ends with exit code 0, and restartPolicy is {_policy(pod)}",
            (where,),
            why,
            (
                "Let its command keep running, or use a Job or restartPolicy OnFailure or Never "
                "for work that ends."
            ),
        )
    meaning = (
        f" ({_EXITS[code % EXIT_CODES]})"
        if code is not None and code % EXIT_CODES in _EXITS
        else ""
    )
    kind = "init container" if _is_init(pod, called) else "container"
    what = (
        f"{kind} {called} fails with exit code {code}{meaning}"
        if code is not None
        else f"{kind} {called} fails"
    )
    what += f": {text}" if text else ""
    logged = explained_log(s, pod)
    if logged is not None:
        return cause_finding(logged, f"{what}: {logged.cause}", where, why)
    return windows_finding(s, pod, "CrashLoopBackOff", text, what, where) or DoctorFinding(
        "error", what, (where,), why, f"Read its log: {logs}"
    )


def _is_init(pod: Object, called: str) -> bool:
    inits = (pod.get("spec") or {}).get("initContainers") or ()
    return any(container.get("name") == called for container in inits)


def _no_command(
    s: ClusterSnapshot, pod: Object, called: str, text: str, where: str
) -> DoctorFinding:
    """Windows' message does not name the file, but the container's command does."""
    spec: Object = next((c for c in init_and_containers(pod) if c.get("name") == called), {})
    words = [*(spec.get("command") or ()), *(spec.get("args") or ())]
    first = str(words[0]) if words else "of the image"
    if line := single_string_command(pod, called):
        found = split_command_cause(s, pod, called, line)
        what = f"container {called} cannot start: {found.cause} ({text})"
        return DoctorFinding(
            "error", what, (where,), _NOT_STARTED, found.remedy, commands=found.commands
        )
    what = f"container {called} cannot start: the image has no command {first} ({text})"
    if first in _SHELLS or first.startswith("/"):
        return known_finding("WIN-CTR-002", what, where)
    return DoctorFinding(
        "error",
        what,
        (where,),
        "It keeps restarting with increasing back-off.",
        f"Correct the container's command, or use an image that has {first}.",
    )


def _policy(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("restartPolicy", "Always"))


def _not_created(
    s: ClusterSnapshot, pod: Object, reason: str, where: str
) -> Iterator[DoctorFinding]:
    events = _persistent_troubles(s, pod)
    # The first message of a mount shows its cause; the later time-outs do not.
    events.sort(key=lambda event: "timed out waiting" in event_message(event))
    age = s.now - time_of(pod["metadata"].get("creationTimestamp", ""))
    if events:
        reason, text = str(events[0].get("reason", "")), event_message(events[0])
        what = f"cannot be created: {reason}: {plain_message(text)}"
        windows = windows_finding(s, pod, reason, text, what, where)
        found = explained_cause(s, pod, reason, text)
        if windows is not None and not (found is not None and found.record):
            yield windows
        elif found is not None:
            yield cause_finding(
                found,
                f"cannot be created: {found.cause} ({reason}: {plain_message(text)})",
                where,
                "Its containers wait for it.",
            )
        else:
            yield DoctorFinding(
                "error",
                what,
                (where,),
                "Its containers wait for it.",
                "Correct what the message names.",
            )
    elif age > LATE and (node := _broken_node(s, pod)):
        yield DoctorFinding(
            "warning",
            f"is {reason}: its node {node} is not Ready",
            (where,),
            "Its containers do not run.",
            f"Repair the node: transom doctor {node}; or delete the pod, so that its controller creates it on another.",
        )
    elif image := _slow_pull(s, pod):
        yield DoctorFinding(
            "warning",
            f"is {reason}: the pull takes more than {int(LATE)} seconds (image {image})",
            (where,),
            "Its containers do not run.",
            "Check the node's connection to the registry. Pull large images ahead of time, or use smaller ones.",
        )
    elif age > LATE:
        yield DoctorFinding(
            "warning",
            f"is {reason} for more than {int(LATE)} seconds",
            (where,),
            "Its containers do not run.",
            f"Read its events: kubectl describe pod {key_of_object(pod)[1]} --namespace {key_of_object(pod)[0]}",
        )


def _slow_pull(s: ClusterSnapshot, pod: Object) -> str:
    """The image that the kubelet pulls for a long time; "" if it pulls none."""
    pulls = [e for e in s.events_of("Pod", pod) if e.get("reason") in ("Pulling", *_PULL_ENDS)]
    last = max(map(event_time, pulls), default=s.now)
    if s.now - last <= LATE:
        return ""
    newest = [event for event in pulls if event_time(event) == last]
    if any(event.get("reason") in _PULL_ENDS for event in newest):
        return ""
    return event_message(newest[0]).removeprefix("Pulling image ").strip('"')


def _persistent_troubles(s: ClusterSnapshot, pod: Object) -> list[Object]:
    """Events of what keeps a pod from being created. A kubelet drops most events of a pod that it
    tries to create for a long time: an older event counts until a later one shows progress.
    """
    reported = [
        event
        for event in s.warnings_of("Pod", pod, *_TROUBLE)
        if not is_outdated(s, event_message(event))
    ]
    recent = [event for event in reported if s.now - event_time(event) < RECENT]
    progress = max(
        (event_time(event) for event in s.events_of("Pod", pod) if event["reason"] in _PROGRESS),
        default=time_of(str(pod["metadata"].get("creationTimestamp") or "")),
    )
    return recent or [event for event in reported if event_time(event) > progress][:1]


def _broken_node(s: ClusterSnapshot, pod: Object) -> str:
    """The pod's node, if it is not Ready."""
    node = str((pod.get("spec") or {}).get("nodeName", ""))
    found = s.node.get(node)
    ready = found is None or status_condition(found, "Ready").get("status") == "True"
    return "" if ready else node


def _ended(pod: Object) -> str:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        last = (container.get("state") or {}).get("terminated") or {}
        if last.get("exitCode"):
            return f"container {container['name']} ended with exit code {last['exitCode']}"
    return ""
