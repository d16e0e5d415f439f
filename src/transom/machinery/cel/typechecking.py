"""Checks the expressions of a validating policy against the types that it matches
(k8s.io/apiserver/pkg/admission/plugin/policy/validating/typechecking.go).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from transom.kit.cel.types import DYN
from transom.machinery.cel.admission import VARIABLE_RESULTS, AdmissionCompiler
from transom.machinery.cel.schema_types import ObjectTypes
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.schema import schema_table

MOST_TYPES: Final = 10
_COMPILING: Final = "compilation failed: "


class CheckedType(NamedTuple):
    """A kind that a policy matches. `schema` is that of a custom kind, None for a built-in one."""

    kind: GVK
    schema: Mapping[str, Any] | None = None


def check_policy_types(
    release: Release,
    policy: Object,
    kinds: Sequence[CheckedType],
    params: CheckedType | None,
) -> list[Object]:
    """The warnings about expressions that do not fit the type of an object."""
    spec = policy["spec"]
    compilers = [(kind, _compiler(release, spec, kind, params)) for kind in kinds]
    found = [(kind, compiler) for kind, compiler in compilers if compiler is not None]
    warnings: list[Object] = []
    for i, validation in enumerate(spec.get("validations") or ()):
        for field in ("expression", "messageExpression"):
            text = validation.get(field)
            if not text:
                continue
            issues = [
                f"{_shown(kind.kind)}: {problem.removeprefix(_COMPILING)}\n"
                for kind, compiler in found
                if (problem := compiler.compile(text, VARIABLE_RESULTS, stored=True).problem)
            ]
            if issues:
                where = f"spec.validations[{i}].{field}"
                warnings.append({"fieldRef": where, "warning": "\n".join(issues)})
    return warnings


def _shown(kind: GVK) -> str:
    return f"{kind.group}/{kind.version}, Kind={kind.kind}"


def _compiler(
    release: Release, spec: Object, kind: CheckedType, params: CheckedType | None
) -> AdmissionCompiler | None:
    """None for a kind whose type is not known."""
    table = schema_table(release)
    types = ObjectTypes(table)

    def type_of(checked: CheckedType) -> Any:
        if checked.schema is not None:
            return types.of_custom(checked.kind.kind, checked.schema)
        builtin = table.lookup(checked.kind)
        return None if builtin is None else types.of_builtin(builtin)

    object_type = type_of(kind)
    if object_type is None:
        return None
    compiler = AdmissionCompiler(
        release,
        params=spec.get("paramKind") is not None,
        composed=True,
        object_type=object_type,
        params_type=(type_of(params) if params is not None else None) or DYN,
        types=types.fields,
    )
    for variable in spec.get("variables") or ():
        compiler.add_variable(variable["name"], variable.get("expression", ""), stored=True)
    return compiler
