"""Recorded refusals of a real server: the same bodies, normalised and defaulted, must give the same
causes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.recorded_cases import GOLDEN, recorded_cases

from transom.machinery import defaults
from transom.machinery.codec import normalise_object
from transom.machinery.field import FieldError
from transom.machinery.kinds import BY_KEY, GVK, KINDS
from transom.machinery.validation import batch, pod, validation_rules, workloads

WITH_RULES = {*pod.VALIDATORS, *workloads.VALIDATORS, *batch.VALIDATORS}
# Admission fills these in before validation.
LIMIT_RANGER = "adm-limitranger"

pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no recorded answers here")


def _key(path: str) -> str | None:
    """The kind of our own that a POST to this path creates."""
    parts = path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" and len(parts) > 2 else ""
    for kind in KINDS:
        if kind.group == group and kind.plural == parts[-1] and kind.key in WITH_RULES:
            return kind.key
    return None


def _steps() -> Iterator[Any]:
    for file in sorted((GOLDEN / "cases").glob("*.yaml")) if GOLDEN.is_dir() else ():
        if file.stem == LIMIT_RANGER:
            continue
        expected = json.loads((GOLDEN / "expected" / "1.20" / f"{file.stem}.json").read_text())
        for case in recorded_cases(file):
            for step in case["steps"]:
                answer = expected.get(case["name"], {}).get(step.get("id"))
                if (
                    step.get("method") != "POST"
                    or not answer
                    or "body" not in step
                    or "query" in step
                ):
                    continue
                key = _key(step["path"])
                if key is not None and answer["status"] in (201, 422):
                    yield pytest.param(
                        key, step["body"], answer, id=f"{file.stem}/{case['name']}/{step['id']}"
                    )


def _prepared(key: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the server has in hand when it validates."""
    kind = BY_KEY[key]
    gvk = GVK(kind.group, kind.storage, kind.kind)
    obj = normalise_object(
        gvk, json.loads(json.dumps(body).replace("${NS}", "ns").replace("${RND}", "rnd"))
    )
    defaults.apply_defaults(gvk, obj)
    meta = obj.setdefault("metadata", {})
    meta.setdefault("namespace", "ns")
    meta["uid"] = "UID"
    if "generateName" in meta:
        meta.setdefault("name", f"{meta['generateName']}xxxxx")
    if key == "/Pod":
        spec = obj.setdefault("spec", {})
        spec.setdefault("serviceAccountName", "default")
        for container in spec.get("containers") or ():  # behind a feature gate that is closed
            (container.get("securityContext") or {}).pop("procMount", None)
    if key == "batch/Job" and not obj["spec"].get("manualSelector"):
        labels = obj["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})
        labels.setdefault("job-name", meta["name"])
        labels.setdefault("controller-uid", "UID")
        obj["spec"].setdefault("selector", {}).setdefault("matchLabels", {}).setdefault(
            "controller-uid", "UID"
        )
    return obj


def _causes(errors: list[FieldError]) -> list[dict[str, str]]:
    return [{"field": e.field, "message": e.body(), "reason": e.reason} for e in errors]


@pytest.mark.parametrize(("key", "body", "answer"), list(_steps()))
def test_same_causes(key: str, body: dict[str, Any], answer: dict[str, Any]) -> None:
    errors = validation_rules(key).create(_prepared(key, body))
    got = _causes(errors)
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
