"""Checks of what every cluster has: its API server, nodes, names and services. By the API alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from transom.doctor.findings import Finding
from transom.doctor.snapshot import Object, Snapshot, condition, is_windows, key, message, moment, name, place, seen
from transom.doctor.texts import recognised
from transom.machinery.selectors import from_map

_DNS: Final = ("kube-system", "kube-dns")
_RECENT: Final = 1200.0  # seconds for which an event about something that is tried again and again counts
_PRESSURE: Final = {
    "MemoryPressure": "Free memory: lower the requests of pods or move some away.",
    "DiskPressure": "Free disk space: remove images and what pods have written.",
    "PIDPressure": "Look for pods with too many processes.",
    "NetworkUnavailable": "Look at the network plugin's agent on the node.",
}
_CREATING: Final = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets", "Job": "jobs"}


# ---- the API server --------------------------------------------------------------------------------------------------


def api_server(s: Snapshot) -> Iterator[Finding]:
    if s.unreachable:
        yield Finding("error", f"the API server does not answer: {s.unreachable}", (), "Nothing else can be examined.",
                      "Check that it runs, and the kubeconfig; for clusters of this machine: transom status --all")  # fmt: skip
    for check in s.unhealthy:
        yield Finding("error", f"the API server says that it is not ready: {check}", (), "Requests may fail.",
                      "Look at its log.")  # fmt: skip
    for plural, problem in s.unread.items():
        yield Finding("info", f"{plural} cannot be read: {problem}", (), "Checks that need them were left out.",
                      "Ask with an account that may read them.")  # fmt: skip


def api_services(s: Snapshot) -> Iterator[Finding]:
    for service in s.of("apiservices"):
        available = condition(service, "Available")
        if available.get("status") == "False":
            yield Finding("error", f"is not available: {_told(available)}", (place("apiservice", service),),
                          "Requests for it fail, and namespaces cannot be deleted meanwhile.",
                          "Look at the pods of the service that it names.")  # fmt: skip


def webhooks(s: Snapshot) -> Iterator[Finding]:
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        for configuration in s.of(kind):
            for hook in configuration.get("webhooks") or ():
                target = (hook.get("clientConfig") or {}).get("service")
                problem = _unserved(s, target) if target else ""
                if problem:
                    fails = hook.get("failurePolicy", "Fail") == "Fail"
                    yield Finding(
                        "error" if fails else "warning", f"webhook {hook['name']} is called at {problem}",
                        (place(kind.removesuffix("s"), configuration),),
                        "Requests that it is asked about are refused." if fails else "Requests pass without it, later.",
                        "Start its pods, or remove the configuration.",
                    )  # fmt: skip


def _unserved(s: Snapshot, target: Object) -> str:
    found = str(target.get("namespace", "")), str(target.get("name", ""))
    if found not in s.service:
        return "" if "services" in s.unread else f"service {'/'.join(found)}, which does not exist"
    if s.service[found]["spec"].get("type") == "ExternalName" or "endpoints" in s.unread:
        return ""
    return "" if _ready_addresses(s, found) else f"service {'/'.join(found)}, which has no ready endpoints"


# ---- nodes -----------------------------------------------------------------------------------------------------------


def nodes(s: Snapshot) -> Iterator[Finding]:
    if not s.nodes and not s.unreachable and "nodes" not in s.unread:
        yield Finding("warning", "there are no nodes", (), "No pod can run.", "Add nodes.")
    for node in s.nodes:
        where = place("node", node)
        ready = condition(node, "Ready")
        if ready.get("status") != "True":
            yield _not_ready(s, node, ready, where)
        for kind, remedy in _PRESSURE.items():
            found = condition(node, kind)
            if found.get("status") == "True":
                why = "Pods are evicted or not placed there." if kind != "NetworkUnavailable" else "No pods are placed there."
                yield Finding("error", f"{kind}: {_told(found)}", (where,), why, remedy)
        if node["spec"].get("unschedulable"):
            yield Finding("info", "is cordoned", (where,), "No new pods are placed there.", f"kubectl uncordon {name(node)}")


def _not_ready(s: Snapshot, node: Object, ready: Object, where: str) -> Finding:
    what = f"is not Ready: {_told(ready) or 'it has never been'}"
    if is_windows(node) and (found := recognised(ready.get("reason", ""), ready.get("message", ""), what, where)):
        return found
    why = "Its pods are not served, and are moved away after five minutes."
    inside = s.inside.get(name(node))
    if inside is not None and inside.state == "stopped":
        return Finding("error", what, (where,), why, f"The machine is off: transom node start {name(node)}")
    if ready.get("status") == "Unknown":
        remedy = "Check that the machine runs and that its kubelet reaches the API server."
    else:
        remedy = "Look at its kubelet's log."
    return Finding("error", what, (where,), why, remedy)


def skew(s: Snapshot) -> Iterator[Finding]:
    """A kubelet may be up to two minor versions older than the API server, and never newer."""
    server = _minor(str(s.version.get("gitVersion", "")))
    for node in s.nodes:
        version = str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion", ""))
        minor = _minor(version)
        if server and minor and not server - 2 <= minor <= server:
            what = f"its kubelet is {version}, the API server {s.version['gitVersion']}"
            yield Finding("warning", what, (place("node", node),),
                          "A kubelet may be up to two minor versions older, and never newer.",
                          "Upgrade the older of them.")  # fmt: skip


def _minor(version: str) -> int:
    found = re.match(r"v1\.(\d+)", version)
    return int(found[1]) if found else 0


def _told(found: Object) -> str:
    return ": ".join(part for part in (found.get("reason"), found.get("message")) if part)


# ---- names and services ----------------------------------------------------------------------------------------------


def names(s: Snapshot) -> Iterator[Finding]:
    if s.unreachable or {"services", "endpoints"} & s.unread.keys() or not s.nodes:
        return
    where = ("service/" + "/".join(_DNS),)
    why = "Pods cannot resolve names of services."
    if _DNS not in s.service:
        yield Finding("warning", "there is no service kube-dns in kube-system", where, why, "Install the cluster's DNS server.")
    elif not _ready_addresses(s, _DNS):
        yield Finding("error", "the cluster's DNS has no ready endpoints", where, why,
                      "Look at the DNS pods: kubectl get pods --namespace kube-system --selector k8s-app=kube-dns")  # fmt: skip


def services(s: Snapshot) -> Iterator[Finding]:
    if {"endpoints", "pods"} & s.unread.keys():
        return
    for where, service in s.service.items():
        spec = service["spec"]
        selector = spec.get("selector")
        if where == _DNS or not selector or spec.get("type") == "ExternalName" or _ready_addresses(s, where):
            continue
        chosen = [pod for pod in s.pods if key(pod)[0] == where[0] and from_map(selector).matches(_labels(pod))]
        text = ",".join(f"{label}={value}" for label, value in selector.items())
        if not chosen:
            what = f"no pod has the labels that it selects ({text})"
            remedy = "Compare its selector with the labels of the pods."
        else:
            what = f"none of its {len(chosen)} pods is ready"
            remedy = f"Look at the pods: kubectl get pods --namespace {where[0]} --selector {text}"
        yield Finding("warning", what, (place("service", service),), "Nobody answers at its address.", remedy)


def _labels(obj: Object) -> dict[str, str]:
    return dict(obj["metadata"].get("labels") or {})


def _ready_addresses(s: Snapshot, service: tuple[str, str]) -> list[Any]:
    subsets = s.endpoints.get(service, {}).get("subsets") or ()
    return [address for subset in subsets for address in subset.get("addresses") or ()]


# ---- what makes pods -------------------------------------------------------------------------------------------------


def failed_creates(s: Snapshot) -> Iterator[Finding]:
    """Controllers that cannot make their pods: by quota, by a webhook, by something else."""
    for kind, plural in _CREATING.items():
        for owner in s.of(plural):
            namespace, called = key(owner)
            if _has_all(kind, owner):
                continue
            for event in s.warnings(kind, namespace, called, "FailedCreate", uid=owner["metadata"].get("uid", ""))[:1]:
                if s.now - seen(event) < _RECENT:
                    text = message(event)
                    why, remedy = _refusal(text)
                    yield Finding("error", f"cannot make its pods: {_cause(text)}", (place(kind.lower(), owner),), why, remedy)


def _cause(text: str) -> str:
    """Without the pod's name, which is another one each time."""
    return re.sub(r'pods "[^"]*" is forbidden', "a pod is forbidden", text.removeprefix("Error creating: "))


def _refusal(text: str) -> tuple[str, str]:
    if "exceeded quota" in text or "failed quota" in text:
        return "The namespace's quota allows no more.", "Raise the quota, lower requests, or remove what is not needed."
    if "webhook" in text:
        return "An admission webhook refuses pods, or does not answer.", "Look at the webhook's pods and configuration."
    return "The pods that it wants are not there.", "Change its template to what the message asks for."


def _has_all(kind: str, owner: Object) -> bool:
    spec, status = owner.get("spec") or {}, owner.get("status") or {}
    if kind == "DaemonSet":
        return bool(status.get("currentNumberScheduled", 0) >= status.get("desiredNumberScheduled", 0))
    if kind == "Job":
        return bool(status.get("active", 0) or status.get("completionTime"))
    return bool(status.get("replicas", 0) >= spec.get("replicas", 1))


def quotas(s: Snapshot) -> Iterator[Finding]:
    for quota in s.of("resourcequotas"):
        status = quota.get("status") or {}
        used = status.get("used") or {}
        full = [n for n, hard in (status.get("hard") or {}).items() if hard == used.get(n) and hard not in ("0", 0)]
        if full:
            yield Finding("info", f"nothing is left of {', '.join(sorted(full))}", (place("resourcequota", quota),),
                          "New objects that need it are refused.", "Raise it before more is needed.")  # fmt: skip


def claims(s: Snapshot) -> Iterator[Finding]:
    for claim in s.of("persistentvolumeclaims"):
        if (claim.get("status") or {}).get("phase") in ("Bound", None):
            continue
        events = s.warnings("PersistentVolumeClaim", *key(claim))
        age = s.now - moment(claim["metadata"].get("creationTimestamp", ""))
        if events or (claim["status"]["phase"] == "Lost" or age > 300):
            told = f": {message(events[0])}" if events else ""
            yield Finding("error" if events else "warning", f"is {claim['status']['phase']}{told}",
                          (place("persistentvolumeclaim", claim),), "Pods that use it wait.",
                          "Check its storage class and the volumes that there are.")  # fmt: skip


def namespaces(s: Snapshot) -> Iterator[Finding]:
    for namespace in s.of("namespaces"):
        since = moment(namespace["metadata"].get("deletionTimestamp") or "")
        if since and s.now - since > 60:
            texts = [str(c.get("message", "")) for c in (namespace.get("status") or {}).get("conditions") or ()
                     if c.get("status") == "True"]  # fmt: skip
            yield Finding("warning", "is being deleted for more than a minute" + "".join(f"; {t}" for t in texts),
                          (place("namespace", namespace),), "Its name cannot be used again.",
                          "Look for finalizers, and for parts of the API that are not available.")  # fmt: skip
