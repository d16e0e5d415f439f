"""The files of a bug report: a form to fill in, versions, environment, findings, objects, events
and logs.

Everything is redacted. This module does not access the cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from transom.doctor import redact
from transom.doctor.findings import DoctorFinding
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    event_message,
    event_time,
    is_windows_node,
    name_of_object,
)
from transom.kit.clock import rfc3339

TRACKER: Final = "https://github.com/kubernetes/kubernetes/issues"
SLACK: Final = "#sig-windows on the Slack of Kubernetes (https://slack.k8s.io)"
_OBJECTS: Final = (
    "nodes",
    "pods",
    "services",
    "endpoints",
    "replicasets",
    "daemonsets",
    "statefulsets",
    "jobs",
)

_TEMPLATE: Final = """\
<!--
To be reported to the issue tracker of Kubernetes, for SIG Windows: {tracker}/new
Before that:
- Search the existing issues: {tracker}?q=label%3Asig%2Fwindows
  If it is reported already, comment there with what you have seen, and add your logs.
- Ask for ideas in {slack}.
{simulated}Read what is below and in the archive before you publish it: passwords, tokens and keys were looked for and taken
out.
-->

# TITLE

## What happened


## What you expected to happen


## Steps to reproduce

1.
2.
3.

## Version

{version}

## Environment

{environment}

## Output of transom doctor

{findings}

## Logs

The archive {archive} has logs and more; attach it. In it:

{listing}

/sig windows
"""
_SIMULATED: Final = """\
- This cluster's nodes are simulated by transom. Make sure that a real one does the same: what transom alone does wrong is to
  be reported to transom.
"""


@dataclass
class CollectedReport:
    """What was read in addition to the snapshot."""

    archive: str
    client: Mapping[str, Any]  # versions of clients
    doctor: str = ""  # the findings as text
    # node -> file name -> content
    logs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # node -> the state of its host networking service
    hns: Mapping[str, Any] = field(default_factory=dict)
    cluster_log: str = ""


def report_files(
    s: ClusterSnapshot, findings: Sequence[DoctorFinding], more: CollectedReport
) -> dict[str, bytes]:
    """Name in the archive -> content."""
    out: dict[str, str] = {
        "version.json": _json({"clientVersion": more.client, "serverVersion": s.version}),
        "environment.json": _json(report_environment(s)),
        "doctor.txt": redact.redact_text(more.doctor),
        "findings.json": _json([one.document() for one in findings]),
        "events.txt": redact.redact_text(report_events(s.of("events"))),
    }
    out |= {
        f"objects/{plural}.json": _json(list(found))
        for plural in _OBJECTS
        if (found := s.of(plural))
    }
    for node in s.nodes:
        about = [event for event in s.of("events") if _concerns(event, s, name_of_object(node))]
        if about:
            out[f"nodes/{name_of_object(node)}/events.txt"] = redact.redact_text(
                report_events(about)
            )
    for node_name, found_logs in more.logs.items():
        out |= {
            f"nodes/{node_name}/{file}": redact.redact_text(content)
            for file, content in found_logs.items()
        }
    out |= {f"nodes/{node_name}/hns.json": _json(found) for node_name, found in more.hns.items()}
    if more.cluster_log:
        out["cluster.log"] = redact.redact_text(more.cluster_log)
    out = {"report.md": _report(s, more, sorted([*out, "report.md"])), **out}
    return {file: content.encode() for file, content in out.items()}


def _concerns(event: Object, s: ClusterSnapshot, node: str) -> bool:
    about = event.get("involvedObject") or {}
    source = (event.get("source") or {}).get("host") or event.get("reportingInstance") or ""
    return node in (source, about.get("name") if about.get("kind") == "Node" else "")


def _json(found: Any) -> str:
    return json.dumps(redact.redact_value(found), indent=1, default=str) + "\n"


# ---- the text ----


def _report(s: ClusterSnapshot, more: CollectedReport, listing: Iterable[str]) -> str:
    found = report_environment(s)
    lines = [
        f"- Cloud provider: {found['cloudProvider']}",
        f"- Network: {found['network']}",
        "",
        "| node | OS | kernel | runtime | kubelet |",
        "|---|---|---|---|---|",
        *(
            (
                f"| {n['name']} | {n['osImage']} | {n['kernelVersion']} | "
                f"{n['containerRuntimeVersion']} | {n['kubeletVersion']} |"
            )
            for n in found["nodes"]
        ),
    ]
    versions = [
        *(f"- {who}: {version}" for who, version in more.client.items()),
        f"- API server: {s.version.get('gitVersion') or s.unreachable or 'not known'}",
    ]
    return _TEMPLATE.format(
        tracker=TRACKER,
        slack=SLACK,
        archive=more.archive,
        version="\n".join(versions),
        environment="\n".join(lines),
        findings=f"```\n{redact.redact_text(more.doctor).strip()}\n```",
        listing="\n".join(f"- {file}" for file in listing),
        simulated=_SIMULATED if any(one.simulated for one in s.inside.values()) else "",
    )


def report_environment(s: ClusterSnapshot) -> dict[str, Any]:
    providers = {
        str(node["spec"].get("providerID", "")).partition("://")[0] for node in s.nodes
    } - {""}
    keys = (
        "osImage",
        "kernelVersion",
        "operatingSystem",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
    )
    return {
        "cloudProvider": ", ".join(sorted(providers)) or "none",
        "network": _network(s),
        "nodes": [
            {
                "name": name_of_object(node),
                **{
                    key: ((node.get("status") or {}).get("nodeInfo") or {}).get(key, "")
                    for key in keys
                },
                "podCIDR": node["spec"].get("podCIDR", ""),
                "windows": is_windows_node(node),
            }
            for node in s.nodes
        ],
        "inside": [asdict(one) for one in s.inside.values()],
    }


def _network(s: ClusterSnapshot) -> str:
    """As our own nodes report it, or as network agents write it on nodes."""
    windows = [one for one in s.inside.values() if one.windows]
    networks = {f"{one.mode} by {one.plugin}" for one in windows or s.inside.values()}
    backends = {
        f"flannel {backend}"
        for node in s.nodes
        if (
            backend := (node["metadata"].get("annotations") or {}).get(
                "flannel.alpha.coreos.com/backend-type"
            )
        )
    }
    pods = {str(node["spec"]["podCIDR"]) for node in s.nodes if node["spec"].get("podCIDR")}
    ranges = (
        [f"pods in {', '.join(sorted(pods)[:4])}{' and more' if len(pods) > 4 else ''}"]
        if pods
        else []
    )
    return "; ".join([*sorted(networks), *sorted(backends), *ranges]) or "not known"


def report_events(found: Iterable[Object]) -> str:
    """One line each, the oldest first."""
    rows = []
    for event in sorted(found, key=event_time):
        about = event.get("involvedObject") or {}
        place = "/".join(
            filter(
                None,
                (str(about.get("kind", "")).lower(), about.get("namespace"), about.get("name")),
            )
        )
        many = f" (x{event['count']})" if event.get("count", 1) > 1 else ""
        what = f"{event.get('type', '')} {event.get('reason', '')} {place}{many}: {event_message(event)}"
        rows.append(f"{rfc3339(event_time(event))} {what}\n")
    return "".join(rows)
