"""Probes that fail, cannot run, or have ended a container."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

from transom.doctor import causes, repairs
from transom.doctor.findings import DoctorFinding
from transom.doctor.pod_messages import (
    RECENT,
    cause_finding,
    has_recent_warning,
    init_and_containers,
    newest_message,
    plain_message,
)
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    event_message,
    event_time,
    key_of_object,
    status_condition,
    time_of,
)

LATE: Final = 120.0  # seconds in which a pod should have been created
EXIT_CODES: Final = 1 << 32  # Windows exit codes are shown as signed numbers
_SILENT: Final = re.compile(r"(Readiness|Liveness|Startup) probe failed:?\s*$")
_REFUSED: Final = re.compile(
    r"(Readiness|Liveness|Startup) probe failed: .*dial tcp \S+:(\d+): connect"
)
_KILLED: Final = (0, 137, 143, 3221225786)  # exit codes of containers that were asked to end


def explains_end(s: ClusterSnapshot, event: Object, last: Object) -> bool:
    """Whether the kubelet may have killed a container because of what an event reports. A kubelet
    drops most events of a pod that restarts often, so the event of the last restart may be missing.
    """
    code = int(last.get("exitCode") or 0)
    return s.now - event_time(event) < 2 * RECENT or code % EXIT_CODES in _KILLED


def killed_by_probe(s: ClusterSnapshot, pod: Object, called: str, last: Object) -> str:
    for event in s.events_of("Pod", pod):
        text = event_message(event)
        if (
            event.get("reason") == "Killing"
            and explains_end(s, event, last)
            and re.match(rf"(?:Init c|C)ontainer {re.escape(called)} failed", text)
        ):
            probe = "Startup" if "startup" in text else "Liveness"
            detail = next(
                (
                    event_message(e)
                    for e in s.warnings_of("Pod", pod, "Unhealthy")
                    if event_message(e).startswith(probe)
                ),
                "",
            )
            return plain_message(detail).rstrip(": ") or f"its {probe.lower()} probe fails"
    return ""


def unready(s: ClusterSnapshot, pod: Object, where: str) -> Iterator[DoctorFinding]:
    why = "Services do not send traffic to it."
    conditions = {c.get("type"): c for c in (pod.get("status") or {}).get("conditions") or ()}
    gates = [
        gate.get("conditionType", "")
        for gate in (pod.get("spec") or {}).get("readinessGates") or ()
    ]
    unmet = [gate for gate in gates if (conditions.get(gate) or {}).get("status") != "True"]
    if unmet:
        yield DoctorFinding(
            "warning",
            f"is not ready: its readiness gate {', '.join(unmet)} is not True",
            (where,),
            why,
            "Check the controller that sets this condition.",
        )
        return
    if (
        s.node.get(pod["spec"]["nodeName"]) is not None
        and status_condition(s.node[pod["spec"]["nodeName"]], "Ready").get("status") != "True"
    ):
        return  # the node has its own finding
    if s.now - time_of(
        status_condition(pod, "Ready").get("lastTransitionTime", "")
    ) < 5 and not has_recent_warning(s, pod, "Unhealthy"):
        return
    container = _late_container(s, pod)
    text = newest_message(s, pod, "Unhealthy")
    if text and (container or has_recent_warning(s, pod, "Unhealthy")):
        found = explained_probe(s, pod, text)
        what = f"is not ready: {found.cause} ({text})" if found.cause else f"is not ready: {text}"
        yield cause_finding(found, what, where, why)._replace(severity="warning")
    elif container:
        namespace, called = key_of_object(pod)
        yield DoctorFinding(
            "warning",
            f"is not ready: the readiness probe of container {container} does not succeed",
            (where,),
            why,
            f"See its events: kubectl describe pod {called} --namespace {namespace}; correct the probe, or what the "
            "container answers.",
        )


def _late_container(s: ClusterSnapshot, pod: Object) -> str:
    """A container that has run without becoming ready for longer than its probe needs to decide."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        spec: Object = next(
            (c for c in init_and_containers(pod) if c["name"] == status["name"]), {}
        )
        probe, running = spec.get("readinessProbe"), (status.get("state") or {}).get("running")
        if status.get("ready") or not probe or not running:
            continue
        seconds = int(probe.get("initialDelaySeconds") or 0) + int(
            probe.get("failureThreshold") or 3
        ) * int(probe.get("periodSeconds") or 10)
        if s.now - time_of(str(running.get("startedAt") or "")) > LATE + seconds:
            return str(status["name"])
    return ""


def probes_without_result(s: ClusterSnapshot, pod: Object, where: str) -> Iterator[DoctorFinding]:
    """Probes that the kubelet cannot run at all neither fail nor succeed."""
    for event in s.warnings_of("Pod", pod, "Unhealthy"):
        text = event_message(event)
        if s.now - event_time(event) < RECENT and " probe errored" in text:
            found = explained_probe(s, pod, text)
            if found.cause:  # otherwise the container may have been starting or ending
                yield cause_finding(
                    found,
                    f"a probe cannot run: {found.cause} ({plain_message(text)})",
                    where,
                    "The kubelet ignores the probe: it does not notice when the container fails.",
                )._replace(severity="warning")
                return


def _silent_command(pod: Object, probe: str) -> causes.ExplainedCause | None:
    """The cause of an exec probe that fails without output, as it does when it exceeds its time."""
    namespace, called = key_of_object(pod)
    for container in init_and_containers(pod):
        words = ((container.get(probe) or {}).get("exec") or {}).get("command") or ()
        if words:
            seconds = container[probe].get("timeoutSeconds") or 1
            command = shlex.join(map(str, words))
            return causes.ExplainedCause(
                f"its command fails without output, or takes longer than timeoutSeconds ({seconds})",
                f"Run it: kubectl exec {called} --namespace {namespace} --container {container['name']} -- {command}; if it "
                f"takes longer than {seconds} s, raise timeoutSeconds of the {probe}.",
                "",
            )
    return None


def _declared_port(s: ClusterSnapshot, pod: Object, text: str) -> tuple[str, ...]:
    """Lets a probe whose port does not answer use the only port that its container declares."""
    refused = _REFUSED.match(text)
    if refused is None:
        return ()
    probe, wrong = f"{refused[1].lower()}Probe", int(refused[2])
    for container in init_and_containers(pod):
        declared = [port.get("containerPort") for port in container.get("ports") or ()]
        for action in ("httpGet", "tcpSocket"):
            requested = ((container.get(probe) or {}).get(action) or {}).get("port")
            if requested == wrong and len(declared) == 1 and declared != [wrong]:
                change = {probe: {action: {"port": declared[0]}}}
                return repairs.change_container(s, pod, str(container["name"]), change)
    return ()


def explained_probe(s: ClusterSnapshot, pod: Object, text: str) -> causes.ExplainedCause:
    """Why a probe fails; an empty cause if the text is not known."""
    os = "windows" if s.on_windows(pod) else "linux"
    silent = _SILENT.match(text)
    if silent is not None and (found := _silent_command(pod, f"{silent[1].lower()}Probe")):
        return found
    known = causes.explain_text(causes.PROBE, "", text, os)
    if known is not None:
        return known._replace(commands=_declared_port(s, pod, text))
    return causes.ExplainedCause(
        "",
        "Correct the probe (path, port, command, initialDelaySeconds, timeoutSeconds), or what the "
        "container answers.",
        "",
    )
