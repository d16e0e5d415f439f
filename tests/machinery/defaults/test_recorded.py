"""Recorded responses of a real server: our defaults are in them, and nothing is missing that is not
set later.
"""

import json
import re
from typing import Any

import pytest
from tests.recorded_cases import GOLDEN, recorded_cases

from transom.machinery.defaults import apply_defaults
from transom.machinery.kinds import GVK, KINDS
from transom.machinery.normalise import normalise_value

CASES = GOLDEN / "cases" / "api-defaults.yaml"
ANSWERS = GOLDEN / "expected" / "1.20" / "api-defaults.json"

# What admission, allocation and strategies add after us.
LATER = re.compile(
    r"""
      Pod\.spec\.(preemptionPolicy|priority|serviceAccount|serviceAccountName|tolerations|volumes|overhead)
    | Pod\.spec\.(containers|initContainers)\[0\]\.(volumeMounts|resources\.(limits|requests))
    | Pod\.spec\.nodeSelector\.x | Pod\.status\.(phase|qosClass)
    | Service\.spec\.(clusterIPs?|healthCheckNodePort|ports\[\d\]\.nodePort)
    | Job\.(metadata\.labels|spec\.(selector|template\.metadata\.labels))
    | Namespace\.spec\.finalizers | Node\.spec\.taints
    | CertificateSigningRequest\.spec\.(groups|username)
    | StatefulSet\.status\.availableReplicas  # newer types always print it
    """,
    re.VERBOSE,
)


def kind_of(path: str) -> GVK | None:
    parts = path.strip("/").split("/")
    group, version, rest = (
        ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    )
    plural = rest[2] if rest[0] == "namespaces" and len(rest) > 2 else rest[0]
    for kind in KINDS:
        if kind.plural == plural and group in (kind.group, *(name for name, _ in kind.also)):
            return GVK(group, version, kind.kind)
    return None


def recorded() -> list[Any]:
    if not CASES.exists():
        return []
    answers = json.loads(ANSWERS.read_text())
    found = []
    for case in recorded_cases(CASES):
        for step in case["steps"]:
            answer = answers.get(case["name"], {}).get(step.get("id"), {})
            gvk = (
                kind_of(step["path"])
                if step.get("method") == "POST" and answer.get("status") == 201
                else None
            )
            if gvk:
                found.append(
                    pytest.param(
                        gvk, step["body"], answer["body"], id=f"{case['name']}-{step['id']}"
                    )
                )
    return found


def differences(ours: Any, theirs: Any, path: str) -> list[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        out = [f"{path}.{k}" for k in sorted(ours.keys() ^ theirs.keys())]
        for k in sorted(ours.keys() & theirs.keys()):
            out += differences(ours[k], theirs[k], f"{path}.{k}")
        return out
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [
            d
            for i, (a, b) in enumerate(zip(ours, theirs, strict=True))
            for d in differences(a, b, f"{path}[{i}]")
        ]
    stand_in = isinstance(ours, str) and ("${" in ours or theirs == "TIME")
    return [] if ours == theirs or stand_in else [path]


@pytest.mark.skipif(not CASES.exists(), reason="no recorded answers here")
@pytest.mark.parametrize(("gvk", "body", "answer"), recorded())
def test_recorded(gvk: GVK, body: dict[str, Any], answer: dict[str, Any]) -> None:
    body = json.loads(json.dumps(body, default=str)) | {
        "apiVersion": gvk.api_version,
        "kind": gvk.kind,
    }
    obj = normalise_value(gvk, body)
    apply_defaults(gvk, obj)
    for side in (obj, answer):  # of the metadata, only labels can have defaults
        side["metadata"] = {k: v for k, v in side["metadata"].items() if k == "labels"}
    assert [d for d in differences(obj, answer, gvk.kind) if not LATER.fullmatch(d)] == []
