"""Why a container ends with an error, by the end of its log."""

from __future__ import annotations

import difflib
import re
from typing import Final

from transom.doctor import causes
from transom.doctor.network_policies import forbids_dns
from transom.doctor.pod_causes import KnownCause
from transom.doctor.snapshot import ClusterSnapshot, Object, key_of_object

_LOG_END: Final = 4000  # characters of a log that are examined
_UNRESOLVED: Final = re.compile(
    r"bad address '(?P<a>[^'\s]+)'|Could not resolve host: (?P<b>[\w.-]+)|"
    r"(?:ENOTFOUND|EAI_AGAIN) (?P<c>[\w.-]+)|lookup (?P<d>[\w.-]+)(?: on \S+)?: no such host|"
    r"can't (?:resolve|find) '?(?P<e>[\w.-]+)|getaddrinfo for host \"(?P<f>[\w.-]+)\"|"
    r"host not found in upstream \"(?P<g>[\w.-]+)|"
    r"(?P<h>[\w.-]+): (?:Name or service not known|Temporary failure in name resolution)"
)
LOG_CAUSES: Final[tuple[KnownCause, ...]] = (
    KnownCause(
        r"[Aa]ddress (?:already )?in use|EADDRINUSE|Only one usage of each socket address",
        "its port is in use: another container of the pod listens there",
        "Let each container of the pod listen on a port of its own, or remove one of them.",
    ),
    KnownCause(
        r"'(?P<command>[^'\n]+)' is not recognized as an internal or external command",
        "cmd finds no command {command}",
        "Use a command of Windows instead of {command}, or an image that has it.",
        "WIN-CTR-002",
        os="windows",
    ),
    KnownCause(
        r"The term '(?P<command>[^'\n]+)' is not recognized as (?:the|a) name of a cmdlet",
        "PowerShell finds no command {command}",
        "Use a command of Windows instead of {command}, or an image that has it.",
        "WIN-CTR-002",
        os="windows",
    ),
    KnownCause(
        r"(?:sh|bash|ash): (?:line \d+: |\d+: )?(?P<command>[^\s:]+): (?:command )?not found",
        "the shell finds no command {command}",
        "Correct the command, or use an image that has {command}.",
        os="linux",
    ),
    KnownCause(
        r"User \"system:serviceaccount:(?P<namespace>[^:\"]+):(?P<account>[^\"]+)\" cannot (?P<verb>\w+) resource "
        r"\"(?P<resource>[^\"]+)\" in API group \"(?P<group>[^\"]*)\"",
        "its ServiceAccount {account} may not {verb} {resource}",
        "kubectl create clusterrole {account}-{resource} --verb={verb} --resource={resource}.{group} && "
        "kubectl create clusterrolebinding {namespace}-{account}-{resource} --clusterrole={account}-{resource} "
        "--serviceaccount={namespace}:{account}",
    ),
    KnownCause(
        r"secrets/kubernetes\.io/serviceaccount/\S+?:? (?:No such file|no such file)|"
        r"unable to load in-cluster configuration",
        "the pod has no token of its ServiceAccount",
        "Set automountServiceAccountToken: true in the pod or its ServiceAccount.",
    ),
    KnownCause(
        r"Read-only file system|EROFS",
        "its log says that it writes to a read-only file system",
        "Mount an emptyDir or a claim where it writes, or remove readOnlyRootFilesystem or readOnly; ConfigMaps and "
        "Secrets are always read-only.",
    ),
    KnownCause(
        r"\[emerg\](?: \d+#\d+:)? (?P<why>.+? in (?P<file>\S+:\d+))",
        "nginx rejects its configuration: {why}",
        "Correct {file}.",
    ),
    KnownCause(
        r"OutOfMemory(?:Error|Exception)|JavaScript heap out of memory|std::bad_alloc|\bMemoryError\b|"
        r"Cannot allocate memory",
        "its log says that it has no memory left",
        "Raise its memory limit, or limit the memory that the program uses (heap size).",
    ),
    KnownCause(
        r"password authentication failed|Access denied for user|NOAUTH|WRONGPASS|Login failed for user",
        "its log says that a server rejects its credentials",
        "Correct the user name and password in the Secret or the variables that the container uses.",
    ),
    KnownCause(
        r"\b(?P<variable>[A-Z][A-Z0-9]*_[A-Z0-9_]+)[\"'`]?:? (?:(?:is|was|must be) )?(?:not (?:be )?(?:set|defined|specified)"
        r"|parameter not set|unbound variable|required|undefined)",
        "its log says that the variable {variable} is not set",
        "Set {variable} in the container's env or envFrom.",
    ),
    KnownCause(
        r"[Cc]onnection refused|ECONNREFUSED|actively refused",
        "its log says that a connection was refused",
        "Start the server that it connects to, or correct the address and port; a Service without endpoints has its own "
        "finding.",
    ),
    KnownCause(
        r"(?P<file>(?:/|[A-Z]:\\)[^\s:'\"]+)['\"]?:? (?:No such file or directory|no such file or directory)|"
        r"ENOENT: no such file or directory, \w+ '(?P<f2>[^']+)'|Could not find (?:a part of the path|file) '(?P<f3>[^']+)'",
        "its log says that {file} does not exist",
        "Mount {file} (a volume, a ConfigMap or a Secret), or correct its path.",
    ),
    KnownCause(
        r"Permission denied|EACCES|Access is denied|Access to the path",
        "its log says that access was denied",
        "Correct the container's user (runAsUser, fsGroup; Windows: runAsUserName), or the mode of the files.",
    ),
)


def explained_log(s: ClusterSnapshot, pod: Object) -> causes.ExplainedCause | None:
    end = s.logs.get(key_of_object(pod), "")[-_LOG_END:]
    name = _UNRESOLVED.search(end)
    if name is not None and not s.on_windows(pod):  # Windows has its own check of names
        requested = next(filter(None, name.groups()))
        return _unresolved(s, pod, requested.rstrip("."))
    os = "windows" if s.on_windows(pod) else "linux"
    found = causes.explain_text(LOG_CAUSES, "", end, os)
    # of a resource of the core group
    return (
        found._replace(remedy=re.sub(r"(--resource=[\w/]+)\.(?= )", r"\1", found.remedy))
        if found
        else None
    )


def _unresolved(s: ClusterSnapshot, pod: Object, requested: str) -> causes.ExplainedCause:
    namespace = key_of_object(pod)[0]
    what = f"its log says that the name {requested} is not found"
    spec = pod.get("spec") or {}
    labels = requested.split(".")
    meant = (labels[1] if len(labels) > 1 else namespace, labels[0])
    if meant in s.service and spec.get("dnsPolicy") == "Default":
        return causes.ExplainedCause(
            f"{what}: with dnsPolicy Default it asks the name servers of its node, which do not know Services",
            "Remove dnsPolicy (the default is ClusterFirst), and create the pod again.",
            "",
        )
    blocking = forbids_dns(s, pod)
    if blocking:
        return causes.ExplainedCause(
            f"{what}: no NetworkPolicy allows it to query the DNS server ({', '.join(blocking)} restricts its egress)",
            f"Add an egress rule for port 53, UDP and TCP: kubectl edit networkpolicy {blocking[0]} --namespace {namespace}",
            "",
        )
    elsewhere = sorted(where for where, name in s.service if name == requested)
    if elsewhere and meant not in s.service:
        return causes.ExplainedCause(
            f"{what}: the Service {requested} is in namespace {elsewhere[0]}",
            f"Use the name {requested}.{elsewhere[0]}.",
            "",
        )
    known = [name for where, name in s.service if where == meant[0]]
    similar = difflib.get_close_matches(meant[1], known, 1) if meant not in s.service else []
    if similar:
        return causes.ExplainedCause(
            what, f"Correct the name: there is a Service {similar[0]} in namespace {meant[0]}.", ""
        )
    if meant in s.service:
        return causes.ExplainedCause(
            f"{what}, although the Service exists",
            "Check cluster DNS, and the pod's dnsConfig.",
            "",
        )
    return causes.ExplainedCause(
        what,
        f"Correct the name, or create the Service: kubectl get services --namespace {meant[0]} lists what there is.",
        "",
    )
