"""The review versions of webhooks: of admission and of conversion."""

from __future__ import annotations

from collections.abc import Sequence

from transom.machinery.field import invalid
from transom.machinery.validation.checks import check_each
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.names import is_dns1035_label
from transom.machinery.validation.repetitions import repetitions
from transom.machinery.validation.rules import Errors

REVIEW_VERSIONS = ("v1", "v1beta1")


def check_review_versions(versions: Sequence[str], path: str, *, need_known: bool) -> Errors:
    """`need_known`: one of the versions that the API server sends must be among them."""
    errors: Errors = []
    repeated = repetitions(versions)
    for i, version in enumerate(versions):
        if i in repeated:
            errors.append(invalid(f"{path}[{i}]", version, "duplicate version"))
        else:
            errors += check_each(f"{path}[{i}]", version, is_dns1035_label(version))
    if need_known and not set(versions) & set(REVIEW_VERSIONS):
        errors.append(
            invalid(
                path,
                go_dump("[]string", versions),
                f"must include at least one of {', '.join(REVIEW_VERSIONS)}",
            )
        )
    return errors
