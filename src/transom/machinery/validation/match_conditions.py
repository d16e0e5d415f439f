"""Match conditions of webhooks and admission policies."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from transom.machinery.cel.admission import CONDITION_RESULTS, AdmissionCompiler
from transom.machinery.field import duplicate, invalid, required, too_many
from transom.machinery.releases import Release
from transom.machinery.validation.checks import check_each
from transom.machinery.validation.names import is_qualified_name
from transom.machinery.validation.rules import Errors

_MOST_CONDITIONS: Final = 64


def validate_match_conditions(
    release: Release,
    conditions: Sequence[Mapping[str, Any]],
    path: str,
    *,
    params: bool = False,
    stored: Collection[str] = (),
) -> Errors:
    """The match conditions of a webhook or a policy; only those of policies may use params."""
    errors: Errors = []
    if len(conditions) > _MOST_CONDITIONS:
        errors.append(too_many(path, len(conditions), _MOST_CONDITIONS))
    compiler = AdmissionCompiler(release, params=params, composed=False)
    names: set[str] = set()
    for i, condition in enumerate(conditions):
        here = f"{path}[{i}]"
        text, name = (condition.get("expression") or "").strip(), condition.get("name", "")
        if not text:
            errors.append(required(f"{here}.expression"))
        else:
            found = compiler.compile(text, CONDITION_RESULTS, stored=text in stored)
            if found.problem:
                errors.append(invalid(f"{here}.expression", text, found.problem))
        if not name:
            errors.append(required(f"{here}.name"))
            continue
        errors += check_each(f"{here}.name", name, is_qualified_name(name))
        if name in names:
            errors.append(duplicate(f"{here}.name", name))
        names.add(name)
    return errors
