"""Compiles and evaluates the expressions of authentication and authorization configuration files
(k8s.io/apiserver/pkg/authentication/cel, pkg/authorization/cel).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from transom.kit.cel.environment import CelExpression
from transom.kit.cel.errors import CelError, CompileError
from transom.kit.cel.types import BOOL, DYN, STRING, CelType, list_type, map_type, struct_type
from transom.machinery.cel.brief import BriefBudget
from transom.machinery.cel.environment import expression_environment
from transom.machinery.cel.limits import PER_CALL_LIMIT

_TEXTS: Final = list_type(STRING)
_EXTRA: Final = map_type(STRING, _TEXTS)
_USER: Final = struct_type("kubernetes.UserInfo")
_REVIEW: Final = struct_type("kubernetes.SubjectAccessReviewSpec")
_RESOURCE: Final = struct_type("kubernetes.ResourceAttributes")
_PATH: Final = struct_type("kubernetes.NonResourceAttributes")
_FIELDS: Final = struct_type("kubernetes.FieldSelectorAttributes")
_LABELS: Final = struct_type("kubernetes.LabelSelectorAttributes")
_REQUIREMENT: Final = struct_type("kubernetes.SelectorRequirement")
_SELECTOR: Final = {"rawSelector": STRING, "requirements": list_type(_REQUIREMENT)}
_TYPES: Final[Mapping[str, Mapping[str, CelType]]] = {
    _USER.name: {"username": STRING, "uid": STRING, "groups": _TEXTS, "extra": _EXTRA},
    _REVIEW.name: {
        "resourceAttributes": _RESOURCE,
        "nonResourceAttributes": _PATH,
        "user": STRING,
        "groups": _TEXTS,
        "extra": _EXTRA,
        "uid": STRING,
    },
    _RESOURCE.name: {
        **dict.fromkeys(
            ("namespace", "verb", "group", "version", "resource", "subresource", "name"), STRING
        ),
        "fieldSelector": _FIELDS,
        "labelSelector": _LABELS,
    },
    _FIELDS.name: _SELECTOR,
    _LABELS.name: _SELECTOR,
    _REQUIREMENT.name: {"key": STRING, "operator": STRING, "values": _TEXTS},
    _PATH.name: {"path": STRING, "verb": STRING},
}
_VARIABLES: Final[Mapping[str, CelType]] = {
    "claims": map_type(STRING, DYN),
    "user": _USER,
    "request": _REVIEW,
}


class IdentityExpression(NamedTuple):
    source: str
    variable: str
    compiled: CelExpression

    def evaluate(self, value: Any, brief: BriefBudget | None) -> Any:
        """Raises CelError, and BriefBudgetSpentError if there is a brief budget."""
        program, variables = self.compiled.program, {self.variable: value}
        if brief is None:
            found = program.evaluate(variables, PER_CALL_LIMIT)
        else:
            found = brief.evaluate(program, variables)
        if found.error is not None:
            raise CelError(str(found.error))
        return found.value


def compile_identity(
    release: tuple[int, int], source: str, variable: str, *, boolean: bool
) -> IdentityExpression:
    """An expression over `claims`, `user` or `request`. Raises ValueError with the text of
    Kubernetes' error.
    """
    environment = expression_environment(release, stored=True)
    try:
        compiled = environment.compile(source, {variable: _VARIABLES[variable]}, _TYPES)
    except CompileError as problem:
        raise ValueError(f"compilation failed: {problem}") from None
    if boolean and compiled.type != BOOL:
        got = f" but got {compiled.type}" if variable == "request" else ""
        raise ValueError(f"must evaluate to bool{got}")
    return IdentityExpression(source, variable, compiled)
