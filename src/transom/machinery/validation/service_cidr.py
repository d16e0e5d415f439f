"""ServiceCIDR and IPAddress (networking.k8s.io)."""

from __future__ import annotations

from typing import Any, Final

from transom.machinery.field import invalid, required
from transom.machinery.releases.features import FeatureSet
from transom.machinery.schema import schema_table
from transom.machinery.validation.addresses import canonical_cidr, canonical_ip
from transom.machinery.validation.checks import check_each, dns_subdomain
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.internal_dump import dump_internal
from transom.machinery.validation.meta import (
    immutable,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import (
    IMMUTABLE,
    is_path_segment_name,
    name_is_dns_subdomain,
    parse_cidr,
)
from transom.machinery.validation.rules import Errors, Object, RulesFactory, ValidationRules

_CIDRS: Final = "spec.cidrs"


def _cidrs(obj: Object) -> list[str]:
    return (obj.get("spec") or {}).get("cidrs") or []


def _family(cidr: str) -> int:
    found = parse_cidr(cidr)
    return 0 if found is None else found[1].version


def _check_cidrs(obj: Object, features: FeatureSet) -> Errors:
    cidrs = _cidrs(obj)
    if not cidrs:
        return [required(_CIDRS, "at least one CIDR required")]
    if len(cidrs) > 2:
        of = schema_table(features.release).get("networking/v1.ServiceCIDRSpec")
        return [invalid(_CIDRS, dump_internal(of, obj["spec"]), "may only hold up to 2 values")]
    errors = [
        error for i, cidr in enumerate(cidrs) for error in canonical_cidr(cidr, f"{_CIDRS}[{i}]")
    ]
    if len(cidrs) == 2 and _family(cidrs[0]) == _family(cidrs[1]) != 0:
        text = (
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and "
            "2001:db8::/64"
        )
        errors.append(invalid(_CIDRS, go_dump("[]string", cidrs), text))
    return errors


def _service_cidr_rules(features: FeatureSet) -> ValidationRules:
    def create(obj: Object) -> Errors:
        errors = validate_object_meta(obj["metadata"], False, name_is_dns_subdomain)
        return errors + _check_cidrs(obj, features)

    def update(new: Object, old: Object) -> Errors:
        errors = validate_object_meta_update(new["metadata"], old["metadata"])
        cidrs, before = _cidrs(new), _cidrs(old)
        if len(cidrs) == len(before):
            return errors + [
                invalid(f"{_CIDRS}[{i}]", cidrs[i], IMMUTABLE)
                for i, cidr in enumerate(before)
                if cidr != cidrs[i]
            ]
        if len(before) == 1 and len(cidrs) == 2:  # to dual stack
            errors += immutable(cidrs[0], before[0], f"{_CIDRS}[0]")
            return errors + _check_cidrs(new, features)
        return [*errors, invalid(_CIDRS, go_dump("[]string", cidrs), IMMUTABLE)]

    def status_update(new: Object, old: Object) -> Errors:
        return validate_object_meta_update(new["metadata"], old["metadata"])

    return ValidationRules(create, update, status_update)


def _address_name(name: str, _prefix: bool) -> list[str]:
    return [error.detail for error in canonical_ip(name, "")]


def _parent(reference: dict[str, Any] | None) -> Errors:
    path = "spec.parentRef"
    if reference is None:
        return [required(path)]
    group = reference.get("group", "")
    errors = dns_subdomain(group, f"{path}.group") if group else []
    for name in ("resource", "name", "namespace"):
        value = reference.get(name, "")
        if value:
            errors += check_each(f"{path}.{name}", value, is_path_segment_name(value))
        elif name != "namespace":
            errors.append(required(f"{path}.{name}"))
    return errors


def _ip_address_rules(features: FeatureSet) -> ValidationRules:
    def create(obj: Object) -> Errors:
        errors = validate_object_meta(obj["metadata"], False, _address_name)
        return errors + _parent((obj.get("spec") or {}).get("parentRef"))

    def update(new: Object, old: Object) -> Errors:
        errors = validate_object_meta_update(new["metadata"], old["metadata"])
        reference = (new.get("spec") or {}).get("parentRef")
        shown = None
        if reference is not None:
            of = schema_table(features.release).get("networking/v1.ParentReference")
            shown = dump_internal(of, reference)
        before = (old.get("spec") or {}).get("parentRef")
        return errors + immutable(reference, before, "spec.parentRef", shown)

    return ValidationRules(create, update)


VALIDATORS: Final[dict[str, RulesFactory]] = {
    "networking.k8s.io/IPAddress": _ip_address_rules,
    "networking.k8s.io/ServiceCIDR": _service_cidr_rules,
}
