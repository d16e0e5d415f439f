"""Unset and zero shares of priority levels, by release and version."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.harness import Api
from tests.apiserver.security.support import message, run

ANNOTATION = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
GATE = "ZeroLimitedNominalConcurrencyShares"


def path(version: str, name: str = "") -> str:
    start = f"/apis/flowcontrol.apiserver.k8s.io/{version}/prioritylevelconfigurations"
    return f"{start}/{name}" if name else start


def level(shares: int | None, *annotations: str) -> dict[str, Any]:
    limited: dict[str, Any] = {"limitResponse": {"type": "Reject"}}
    if shares is not None:
        limited["nominalConcurrencyShares"] = shares
    meta = {"name": "x", "annotations": dict.fromkeys(annotations, "")}
    return {"metadata": meta, "spec": {"type": "Limited", "limited": limited}}


async def shares(api: Api, version: str) -> tuple[int, bool]:
    """The shares in a version, and whether the object is annotated."""
    found = await api.ok("GET", path(version, "x"))
    annotated = ANNOTATION in found["metadata"].get("annotations", {})
    return found["spec"]["limited"]["nominalConcurrencyShares"], annotated


@pytest.mark.parametrize(
    ("release", "version", "given", "annotations", "expected"),
    [
        ("1.26", "v1beta3", None, (), 30),
        ("1.28", "v1beta3", 0, (), 30),
        ("1.28", "v1beta3", 0, (ANNOTATION,), 30),
        ("1.29", "v1beta3", None, (), 30),
        ("1.31", "v1beta3", 0, (), 30),
        ("1.31", "v1beta3", 7, (ANNOTATION,), 7),
        ("1.31", "v1", None, (), 30),
        ("1.36", "v1", None, (), 30),
    ],
)
async def test_shares_have_a_default(
    release: str, version: str, given: int | None, annotations: tuple[str, ...], expected: int
) -> None:
    async with run(release=release) as api:
        await api.ok("POST", path(version), level(given, *annotations))
        assert await shares(api, version) == (expected, False)


@pytest.mark.parametrize(("version", "annotations"), [("v1", ()), ("v1beta3", (ANNOTATION,))])
async def test_zero_shares_are_kept_and_annotated_in_v1beta3(
    version: str, annotations: tuple[str, ...]
) -> None:
    async with run(release="1.31") as api:
        await api.ok("POST", path(version), level(0, *annotations))
        assert await shares(api, "v1") == (0, False)
        assert await shares(api, "v1beta3") == (0, True)
        found = await api.ok("GET", path("v1beta3", "x"))
        await api.ok("PUT", path("v1beta3", "x"), found)
        assert await shares(api, "v1") == (0, False)


@pytest.mark.parametrize(("version", "annotations"), [("v1", ()), ("v1beta3", (ANNOTATION,))])
async def test_1_29_rejects_zero_shares_without_the_gate(
    version: str, annotations: tuple[str, ...]
) -> None:
    async with run(release="1.29") as api:
        error = await message(api, 422, "POST", path(version), level(0, *annotations))
        text = "spec.limited.nominalConcurrencyShares: Invalid value: 0: must be positive"
        assert error.endswith(text)
    async with run(release="1.29", feature_gates={GATE: True}) as api:
        await api.ok("POST", path(version), level(0, *annotations))
        assert await shares(api, "v1") == (0, False)


async def test_the_annotation_is_forbidden_in_v1() -> None:
    async with run(release="1.36") as api:
        error = await message(api, 422, "POST", path("v1"), level(1, ANNOTATION))
        text = f"metadata.annotations: Forbidden: annotation '{ANNOTATION}' is forbidden"
        assert error.endswith(text)
