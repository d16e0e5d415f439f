"""Scale, the number of replicas as a sub-resource."""

from __future__ import annotations

from transom.machinery.field import invalid
from transom.machinery.validation.meta import validate_object_meta
from transom.machinery.validation.names import NEGATIVE, name_is_dns_subdomain
from transom.machinery.validation.rules import Errors, Object, ValidationRules


def validate_scale(scale: Object) -> Errors:
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    errors = validate_object_meta(scale["metadata"], True, name_is_dns_subdomain)
    return errors + ([invalid("spec.replicas", replicas, NEGATIVE)] if replicas < 0 else [])


VALIDATORS = {
    "autoscaling/Scale": ValidationRules(validate_scale, lambda new, old: validate_scale(new))
}
