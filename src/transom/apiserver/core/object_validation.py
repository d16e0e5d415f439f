"""Validates an object before it is stored, and finds objects whose validation takes long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from transom.apiserver.core.resources import Resource
from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.machinery import errors
from transom.machinery.field import FieldError, RatchetedError
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from transom.machinery.structural import cel as structural_cel
    from transom.machinery.structural import weight as structural_weight
else:
    structural_cel = lazy_import("transom.machinery.structural.cel")
    structural_weight = lazy_import("transom.machinery.structural.weight")

_DEFINITIONS = "apiextensions.k8s.io/CustomResourceDefinition"
_REGISTRATION = "admissionregistration.k8s.io"
_WEBHOOKS = (
    f"{_REGISTRATION}/MutatingWebhookConfiguration",
    f"{_REGISTRATION}/ValidatingWebhookConfiguration",
)
_POLICIES = (
    f"{_REGISTRATION}/MutatingAdmissionPolicy",
    f"{_REGISTRATION}/ValidatingAdmissionPolicy",
)
_COMPILED = frozenset((_DEFINITIONS, *_WEBHOOKS, *_POLICIES))


def is_compiled(res: Resource, obj: Object) -> bool:
    """Whether validation compiles expressions of the object, which takes long."""
    key = res.kind.key
    if key not in _COMPILED:
        return False
    if key == _DEFINITIONS:
        return _needs_compiling(obj)
    if key in _WEBHOOKS:
        return any(hook.get("matchConditions") for hook in obj.get("webhooks") or ())
    return True


def _needs_compiling(definition: Object) -> bool:
    """Whether a CustomResourceDefinition has validation rules or patterns, which take long to
    compile, or is large.
    """
    spec = definition.get("spec") or {}
    holders = [
        spec.get("validation"),
        *((version or {}).get("schema") for version in spec.get("versions") or ()),
    ]
    schemas = [holder.get("openAPIV3Schema") for holder in holders if isinstance(holder, dict)]
    # The first walk is bounded, so the second one sees small schemas only.
    return any(map(structural_weight.may_have_patterns, schemas)) or any(
        map(structural_cel.has_rules, schemas)
    )


class ObjectProblems(NamedTuple):
    """The response for an invalid object, and warnings about values that may stay invalid."""

    error: errors.ApiError | None
    warnings: Sequence[str]


NO_PROBLEMS = ObjectProblems(None, ())


def validate_object(
    res: Resource, obj: Object, find_problems: Callable[[], list[FieldError]]
) -> ObjectProblems:
    found = find_problems()
    if not found:
        res.ops.default_stored(obj)
        return NO_PROBLEMS
    warnings = [str(problem) for problem in found if isinstance(problem, RatchetedError)]
    problems = [p for p in found if not isinstance(p, RatchetedError)] if warnings else found
    if problems:
        name = obj["metadata"].get("name", "")
        return ObjectProblems(errors.invalid(res.ops.error_kind(obj), name, problems), warnings)
    res.ops.default_stored(obj)
    return ObjectProblems(None, warnings)
