"""Maps the text of an event, a condition or a container status to its cause and remedy: one table.

The texts are those of Kubernetes, its runtimes and its drivers. Named groups of a pattern and the
caller's values (namespace, pod, node, container, image) fill the placeholders of cause and remedy.
The first row that matches wins. Texts that only Windows nodes produce and that have their own
record are in `texts.py`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache
from string import Formatter
from typing import Final, NamedTuple

from transom.doctor.pod_causes import KnownCause


class ExplainedCause(NamedTuple):
    cause: str
    remedy: str
    record: str
    commands: tuple[str, ...] = ()
    change: str = ""  # JSON of a patch of the pod's spec


_LONGEST: Final = 4096  # only this many characters of a text are examined


# Why a kubelet rejected or ended a pod: the reason in the pod's status.
ENDED: Final[Mapping[str, tuple[str, str]]] = {
    "Evicted": (
        "was evicted by its kubelet",
        (
            "Free memory or disk on node {node}, set requests that match what the pod uses, then "
            "delete the pod."
        ),
    ),
    "SysctlForbidden": (
        "asks for sysctls that node {node} does not allow",
        "Remove them from spec.securityContext.sysctls, or allow "
        "them there (kubelet --allowed-unsafe-sysctls); then create the pod again.",
    ),
    "NodeAffinity": (
        "was refused by its kubelet: node {node} does not have the labels that it selects",
        "Correct nodeSelector and affinity, or label the node; then create the pod again.",
    ),
    "MatchNodeSelector": (
        "was refused by its kubelet: node {node} does not have the labels that it selects",
        "Correct nodeSelector and affinity, or label the node; then create the pod again.",
    ),
    "NodeName": ("was sent to another node than spec.nodeName", "Create the pod again."),
    "NodePorts": (
        "was refused by its kubelet: a hostPort is in use on node {node}",
        (
            "Use another hostPort or another node: leave spec.nodeName to the scheduler; then "
            "create the pod again."
        ),
    ),
    "HostPortConflict": (
        "was refused by its kubelet: a hostPort is in use on node {node}",
        "Use another hostPort or another node.",
    ),
    "TaintToleration": (
        "was refused by its kubelet: it does not tolerate a taint of node {node}",
        "Add the toleration, or leave spec.nodeName to the scheduler; then create the pod again.",
    ),
    "PodOSNotSupported": (
        "was refused by its kubelet: spec.os is not the operating system of node {node}",
        "Add nodeSelector kubernetes.io/os, and create the pod again.",
    ),
    "PodOSSelectorNodeLabelDoesNotMatch": (
        (
            "was refused by its kubelet: its label kubernetes.io/os is not the operating system "
            "of node {node}"
        ),
        "Correct the label or the nodeSelector, and create the pod again.",
    ),
    "AppArmor": (
        "asks for an AppArmor profile that node {node} cannot enforce",
        "Load the profile on the node, or remove the annotation; then create the pod again.",
    ),
    "NoNewPrivs": (
        "asks for allowPrivilegeEscalation: false, which the runtime of node {node} is too old for",
        "Upgrade the runtime, or remove the field; then create the pod again.",
    ),
    "ProcMount": (
        "asks for a procMount that the runtime of node {node} is too old for",
        "Upgrade the runtime, or remove the field; then create the pod again.",
    ),
    "UnexpectedAdmissionError": (
        "was refused by its kubelet",
        "Read the message, and the kubelet's log on node {node}.",
    ),
    "Preempting": (
        "was stopped to make room for a critical pod",
        "Add nodes, or lower requests; its controller creates another.",
    ),
    "DeadlineExceeded": (
        "ran longer than its activeDeadlineSeconds",
        "Raise activeDeadlineSeconds, or make it finish sooner; then delete the pod.",
    ),
    "NodeLost": ("is on node {node}, which is lost", "Start the node, or delete the pod."),
    "Shutdown": (
        "was ended by the shutdown of node {node}",
        "Delete the pod; its controller creates another.",
    ),
    "Terminated": (
        "was ended by the shutdown of node {node}",
        "Delete the pod; its controller creates another.",
    ),
}

# Why the API server rejects objects that a controller creates.
REFUSED: Final[tuple[KnownCause, ...]] = (
    KnownCause(
        r"exceeded quota: (?P<quota>[^,\s]+)",
        "the ResourceQuota {quota} allows no more",
        "Raise the quota {quota}, lower the pods' requests, or delete what is not needed.",
    ),
    KnownCause(
        r"failed quota: (?P<quota>[^:]+): must specify (?P<what>.+?)$",
        "the ResourceQuota {quota} requires {what}",
        (
            "Set {what} in the containers' resources, or give the namespace a LimitRange with "
            "defaults."
        ),
    ),
    KnownCause(
        r"(?:maximum|minimum) \S+ usage per|limit to request ratio",
        "a LimitRange of the namespace does not allow the resources",
        "Change the containers' resources, or the LimitRange.",
    ),
    KnownCause(
        r'serviceaccount "(?P<name>[^"]+)" not found',
        "the ServiceAccount {name} does not exist",
        "Create it, or correct serviceAccountName.",
        commands=("kubectl create serviceaccount {name} --namespace {namespace}",),
    ),
    KnownCause(
        r"no PriorityClass with name (?P<name>\S+) was found",
        "the PriorityClass {name} does not exist",
        "Create the PriorityClass {name}, or correct priorityClassName.",
        commands=("kubectl create priorityclass {name} --value=0",),
    ),
    KnownCause(
        r'RuntimeClass\S* "?(?P<name>[^"\s]+)"? not found',
        "the RuntimeClass {name} does not exist",
        "Create the RuntimeClass {name}, or correct runtimeClassName.",
    ),
    KnownCause(
        r"gmsa|[Cc]redential ?[Ss]pec",
        "the GMSA credential specification does not exist, or may not be used",
        "Create the GMSACredentialSpec, and allow the pod's ServiceAccount to use it.",
    ),
    KnownCause(
        r'failed calling webhook "(?P<hook>[^"]+)"',
        "the admission webhook {hook} does not answer",
        "Start the webhook's pods, or remove its configuration.",
    ),
    KnownCause(
        r'admission webhook "(?P<hook>[^"]+)" denied',
        "the admission webhook {hook} denies the pods",
        "Change the template to what the webhook's message asks for.",
    ),
    KnownCause(
        r'violates PodSecurity "(?P<level>[^":]+)',
        "the Pod Security Standard {level} of the namespace forbids the pods",
        "Change the template to what the message names; or lower the standard of the namespace.",
        commands=(
            "kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=privileged "
            "--overwrite",
        ),
    ),
    KnownCause(
        r"unable to validate against any pod security policy",
        "a pod security policy forbids the pods",
        (
            "Change the template to what the policy allows, or allow the ServiceAccount another "
            "policy."
        ),
    ),
    KnownCause(
        r"namespace \S+ (?:is being terminated|because it is being terminated)",
        "its namespace is being deleted",
        "Wait.",
    ),
    KnownCause(
        r"is invalid: ",
        "the pods of its template are not valid",
        "Correct the fields of the template that the message names.",
    ),
    KnownCause(
        r"is forbidden: ",
        "the API server forbids the pods",
        "Change the template to what the message asks for.",
    ),
)

# Why a probe fails.
PROBE: Final[tuple[KnownCause, ...]] = (
    KnownCause(
        r'failed to connect service "\S+:(?P<port>\d+)"',
        "no gRPC server answers on port {port} of the pod",
        "Correct grpc.port in the probe, or let the container serve gRPC health checks on {port} of all addresses (0.0.0.0).",
    ),
    KnownCause(
        r"does not implement the grpc health protocol",
        "the server does not implement the gRPC health protocol",
        "Add the service grpc.health.v1.Health to the server, or use a tcpSocket probe.",
    ),
    KnownCause(
        r'strconv\.Atoi: parsing "(?P<port>[^"]+)"|couldn\'t find port: (?P<p2>\S+)',
        "the probe names a port {port} that the container does not have",
        "Name the container's port {port}, or correct the port in the probe.",
    ),
    KnownCause(
        r"statuscode: (?P<code>404|410)\b",
        "the server has no such path (HTTP {code})",
        "Correct httpGet.path in the probe, or serve this path.",
    ),
    KnownCause(
        r"statuscode: (?P<code>401|403)\b",
        "the server asks the probe for credentials (HTTP {code})",
        "Serve the probe's path without credentials, or send them with httpGet.httpHeaders.",
    ),
    KnownCause(
        r"statuscode: (?P<code>5\d\d)\b",
        "the server answers with an error (HTTP {code})",
        "Read the container's log; correct what the server needs, or the probe's path.",
    ),
    KnownCause(
        r"server gave HTTP response to HTTPS client|first record does not look like a TLS|wrong version number",
        "the probe uses HTTPS, and the server does not",
        "Set httpGet.scheme to HTTP, or correct the port.",
    ),
    KnownCause(
        r'Get "?https://\S+: .*(?:Client\.Timeout|context deadline exceeded|EOF)',
        "the server does not answer the TLS handshake of the probe (scheme HTTPS)",
        "Set httpGet.scheme to HTTP if the server has no TLS, or correct the port.",
    ),
    KnownCause(
        r"statuscode: (?P<code>400)\b",
        "the server rejects the request (HTTP {code}); a server with TLS does so if httpGet.scheme is HTTP",
        "Set httpGet.scheme to HTTPS if the server uses TLS, or correct the probe's path and headers.",
    ),
    KnownCause(
        r"dial tcp \S+:(?P<port>\d+): (?:connect: connection refused|connectex: No connection could be made)",
        "nothing listens on port {port} of the pod",
        "Correct the port in the probe, or let the container listen on {port} of all addresses (0.0.0.0); "
        "if it is slow to start, use a startupProbe.",
    ),
    KnownCause(
        r'exec: "(?P<command>[^"]+)": (?:executable file not found|stat \S+: no such file)',
        "the image has no command {command}",
        "Correct the command in the probe, or use an image that has {command}.",
    ),
    KnownCause(
        r"unreachable host|no route to host|network is unreachable",
        "the node cannot reach the probe's address",
        "Remove host from the probe, so that it uses the pod's address; or correct it.",
    ),
    KnownCause(
        r"cannot find the file specified",
        "the image has no such command",
        "Use httpGet or tcpSocket, or a Windows command.",
        "WIN-CTR-003",
        os="windows",
    ),
    KnownCause(
        r"Client\.Timeout|context deadline exceeded|i/o timeout|timed out|did not properly respond",
        "the container does not answer in time",
        "Raise timeoutSeconds in the probe, or make the container answer sooner.",
    ),
)

# Why a claim is not bound.
CLAIM: Final[tuple[KnownCause, ...]] = (
    KnownCause(
        r'storageclass\S* "(?P<name>[^"]+)" not found',
        "the StorageClass {name} does not exist",
        (
            "Create the StorageClass {name}, or delete the claim and create it with another "
            "storageClassName."
        ),
    ),
    KnownCause(
        r"no persistent volumes available for this claim and no storage class is set",
        "no PersistentVolume fits, and there is no default StorageClass",
        (
            "Create a PersistentVolume of this size and access mode, or name a StorageClass in "
            "the claim."
        ),
    ),
    KnownCause(
        r"[wW]aiting for a volume to be created,? either by (?:the )?external provisioner ['\"](?P<driver>[^'\"]+)['\"]",
        "the provisioner {driver} did not create a volume",
        "Install or start the provisioner {driver}, or use another StorageClass.",
    ),
    KnownCause(
        r"Cannot bind to requested volume \"(?P<name>[^\"]+)\": (?P<why>.+)",
        "the volume {name} that it names does not fit: {why}",
        "Correct spec.volumeName, or the size, access modes and class of claim and volume.",
    ),
    KnownCause(
        r'volume "(?P<name>[^"]+)" already bound to a different claim',
        "the volume {name} is bound to another claim",
        "Correct spec.volumeName.",
    ),
    KnownCause(
        r"invalid AccessModes \[(?P<modes>[^\]]*)\]: only AccessModes \[(?P<allowed>[^\]]*)\]",
        "its provisioner does not support the access mode {modes}",
        "Delete the claim and create it with one of the access modes {allowed}, or with a StorageClass whose provisioner "
        "supports {modes} (shares: azureFile, NFS, SMB).",
    ),
    KnownCause(
        r"error getting snapshot (?P<name>\S+) from api server|snapshot (?P<n2>\S+) is not Ready",
        "the VolumeSnapshot {name}, its dataSource, does not exist or is not ready",
        "Create the VolumeSnapshot, or see why it is not ready: kubectl describe volumesnapshot {name} --namespace {namespace}",
    ),
    KnownCause(
        r"error getting PVC (?P<name>\S+) |claim in dataSource not bound",
        "the claim that its dataSource names does not exist or is not bound",
        "Create the claim that spec.dataSource names, or create this claim again with another dataSource.",
    ),
    KnownCause(
        r"failed to provision volume|Failed to provision",
        "the provisioner cannot create a volume",
        "Read the provisioner's message, and its log.",
    ),
)


# Why a VolumeSnapshot is not taken.
VOLUME_SNAPSHOT: Final[tuple[KnownCause, ...]] = (
    KnownCause(
        r'volumesnapshotclass\S* "(?P<name>[^"]+)" not found',
        "the VolumeSnapshotClass {name} does not exist",
        "Create the VolumeSnapshotClass {name}, or create the snapshot again with another volumeSnapshotClassName.",
    ),
    KnownCause(
        r"default snapshot class",
        "it names no VolumeSnapshotClass, and the driver does not have exactly one default class",
        "Create the snapshot again with a volumeSnapshotClassName, or mark one class of the driver: kubectl annotate "
        "volumesnapshotclass CLASS snapshot.storage.kubernetes.io/is-default-class=true",
    ),
    KnownCause(
        r"failed to retrieve PVC",
        "its claim {claim} does not exist",
        "Create the claim {claim} in namespace {namespace}, or create the snapshot again for another claim.",
    ),
    KnownCause(
        r"not yet bound to a PV",
        "its claim {claim} is not bound",
        "See the claim: kubectl describe pvc {claim} --namespace {namespace}",
    ),
    KnownCause(
        r"cannot find CSI PersistentVolumeSource",
        "its claim {claim} is not of a CSI driver, and only CSI volumes have snapshots",
        "Use a claim of a CSI driver that supports snapshots.",
    ),
    KnownCause(
        r"VolumeSnapshotContent is missing",
        "the VolumeSnapshotContent that it names does not exist",
        "Create the VolumeSnapshotContent, or create the snapshot again with persistentVolumeClaimName.",
    ),
)


def explain_text(
    table: tuple[KnownCause, ...],
    reason: str,
    text: str,
    os: str = "",
    known: Mapping[str, str] | None = None,
) -> ExplainedCause | None:
    """The meaning of a text that a node of this operating system reports with this reason."""
    for row, pattern in _compiled(table):
        if (row.reasons and reason not in row.reasons) or (row.os and os and row.os != os):
            continue
        found = pattern.search(text[:_LONGEST])
        if found is not None:
            values = _Values(known or {})
            for name, value in found.groupdict().items():
                if value is not None:
                    name = _ALIASES.get(name, name)
                    values[name] = _KINDS.get(value, value) if name == "kind" else value
            return ExplainedCause(
                row.cause.format_map(values),
                row.remedy.format_map(values),
                row.record,
                _complete_commands(row.commands, values),
                row.change,
            )
    return None


def _complete_commands(commands: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    """The command lines, if all of their values are known."""
    names = {name for line in commands for _, name, _, _ in Formatter().parse(line) if name}
    quoted = {name: shlex.quote(value) for name, value in values.items()}
    return tuple(line.format_map(quoted) for line in commands) if names <= values.keys() else ()


class _Values(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "that it names"


_ALIASES: Final = {"k2": "kind", "n2": "name", "p2": "port", "f2": "file", "f3": "file"}
_KINDS: Final = {
    "configmap": "ConfigMap",
    "ConfigMap": "ConfigMap",
    "secret": "Secret",
    "config": "ConfigMap",
}


@cache
def _compiled(table: tuple[KnownCause, ...]) -> tuple[tuple[KnownCause, re.Pattern[str]], ...]:
    return tuple((row, re.compile(row.pattern)) for row in table)
