"""Binding: the node of a pod."""

from __future__ import annotations

from transom.machinery.field import not_supported, required
from transom.machinery.validation.rules import Errors, Object, ValidationRules


def validate_binding(binding: Object) -> Errors:
    target = binding.get("target") or {}
    errors: Errors = []
    kind = target.get("kind", "")
    if kind not in ("", "Node"):
        errors.append(not_supported("target.kind", kind, ("Node", "<empty>")))
    if not target.get("name"):
        errors.append(required("target.name"))
    return errors


VALIDATORS = {"/Binding": ValidationRules(validate_binding, lambda new, old: validate_binding(new))}
