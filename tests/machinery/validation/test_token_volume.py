"""The volume with a pod's token is known to be valid, so that validation may skip it."""

from __future__ import annotations

from transom.machinery.field import FieldError
from transom.machinery.pod_warnings import pod_warnings
from transom.machinery.releases import Release
from transom.machinery.serviceaccounts import TOKEN_SOURCES, token_sources
from transom.machinery.validation.volumes import check_volumes


def problems(*sources: object) -> tuple[list[FieldError], list[str]]:
    projected = {"defaultMode": 420, "sources": [*sources]}
    volumes = [{"name": "v", "projected": projected}]
    errors: list[FieldError] = []
    check_volumes(volumes, "p", "spec.volumes", errors)
    pod = {"metadata": {}, "spec": {"volumes": volumes}}
    return errors, list(pod_warnings(Release(1, 36), pod))


def test_the_sources_are_valid_in_any_order() -> None:
    assert token_sources() == TOKEN_SOURCES
    assert problems(*TOKEN_SOURCES) == ([], [])
    assert problems(*reversed(TOKEN_SOURCES)) == ([], [])


def test_other_sources_are_checked() -> None:
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 5}}
    errors, _ = problems(token, *TOKEN_SOURCES[1:])
    assert errors
    _, warnings = problems(*TOKEN_SOURCES, TOKEN_SOURCES[0])
    assert warnings
