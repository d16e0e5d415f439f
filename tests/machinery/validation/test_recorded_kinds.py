"""Recorded refusals of a real server for every kind but pods and workloads: same causes, in the
same order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.recorded_cases import GOLDEN, recorded_cases

from transom.machinery import conversion, defaults, validation
from transom.machinery.codec import normalise_object
from transom.machinery.field import FieldError
from transom.machinery.kinds import GVK, KINDS, Kind

NAMESPACE = "golden-rnd"
ELSEWHERE = frozenset(("pod", "workloads", "batch"))  # modules with a test of their own
# Answers that come from something else than validation: admission, quota, allocation of addresses.
NOT_VALIDATION = frozenset(
    (
        "node-port-range",
        "cluster-ip-range",
        "ip-out-of-range",
        "ip-taken",
        "port-out-of-range",
        "port-taken",
        "null-body",
    )
)

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recorded answers here")


def _kind(path: str) -> tuple[Kind, GVK] | None:
    """The kind that a POST to this path creates, and the version the request speaks."""
    parts = path.strip("/").split("/")
    if parts[0] == "api":
        group, version = "", parts[1]
    elif parts[0] == "apis" and len(parts) > 2:
        group, version = parts[1], parts[2]
    else:
        return None
    for kind in KINDS:
        if kind.plural != parts[-1] or validation._MODULE_OF.get(kind.key) in ELSEWHERE | {None}:
            continue
        served = kind.versions if kind.group == group else dict(kind.also).get(group, ())
        if version in served:
            return kind, GVK(group, version, kind.kind)
    return None


def _steps() -> Iterator[Any]:
    for file in sorted((GOLDEN / "cases").glob("*.yaml")) if GOLDEN.is_dir() else ():
        text = (GOLDEN / "expected" / "1.20" / f"{file.stem}.json").read_text()
        # The namespace was `golden-` and a random word, which some bodies use for a name of their
        # own.
        expected = json.loads(re.sub(r"\bNS\b", NAMESPACE, text.replace("RND", "rnd")))
        for case in recorded_cases(file):
            for step in case["steps"]:
                answer = (expected.get(case["name"]) or {}).get(step.get("id"))
                if (
                    step.get("method") != "POST"
                    or not answer
                    or not isinstance(step.get("body"), dict)
                ):
                    continue
                if "query" in step or step["id"] in NOT_VALIDATION or "?" in step["path"]:
                    continue
                found = _kind(step["path"])
                if found is not None and answer["status"] in (201, 422):
                    yield pytest.param(
                        *found, step["body"], answer, id=f"{file.stem}/{case['name']}/{step['id']}"
                    )


def _prepared(kind: Kind, gvk: GVK, body: dict[str, Any]) -> dict[str, Any]:
    """What the server has in hand when it validates: the strategy's preparations are done by hand
    here.
    """
    text = json.dumps(body).replace("${NS}", NAMESPACE).replace("${RND}", "rnd")
    obj = normalise_object(gvk, json.loads(text))
    defaults.apply_defaults(gvk, obj)
    obj = conversion.to_storage(kind, obj, gvk)
    meta = obj.setdefault("metadata", {})
    meta.pop("managedFields", None)
    obj.pop("status", None)
    local_review = kind.key == "authorization.k8s.io/LocalSubjectAccessReview"
    if (kind.namespaced and kind.key not in validation.NOT_STORED) or local_review:
        meta.setdefault("namespace", NAMESPACE)
    if "generateName" in meta:
        meta.setdefault("name", f"{meta['generateName']}xxxxx")
    spec = obj.get("spec") or {}
    if kind.key == "/Service":
        for name in ("ipFamilies", "ipFamilyPolicy", "topologyKeys"):
            spec.pop(name, None)
        if spec.get("clusterIP"):
            spec.setdefault("clusterIPs", [spec["clusterIP"]])
    if kind.key == "apiextensions.k8s.io/CustomResourceDefinition":
        stored = [
            version["name"] for version in spec.get("versions") or () if version.get("storage")
        ]
        obj["status"] = {"storedVersions": stored[:1]} if stored else {}
    if kind.key == "/Node" and spec.get("podCIDR"):
        spec.setdefault("podCIDRs", [spec["podCIDR"]])
    return obj


def _causes(errors: list[FieldError]) -> list[dict[str, str]]:
    return [{"field": e.field, "message": e.body(), "reason": e.reason} for e in errors]


@pytest.mark.parametrize(("kind", "gvk", "body", "answer"), list(_steps()))
def test_same_causes(kind: Kind, gvk: GVK, body: dict[str, Any], answer: dict[str, Any]) -> None:
    got = _causes(validation.validate_create(kind, _prepared(kind, gvk, body), gvk.api_version))
    if answer["status"] == 201:
        assert got == []
        return
    recorded = answer["body"]
    details = recorded.get("details")
    if isinstance(details, dict) and "causes" in details:
        assert got == details["causes"]
    else:  # only some values were kept
        assert got
        assert got[0]["field"] == recorded.get("details.causes.0.field", got[0]["field"])
        assert got[0]["reason"] == recorded.get("details.causes.0.reason", got[0]["reason"])
