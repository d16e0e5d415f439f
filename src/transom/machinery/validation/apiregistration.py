"""APIService: a group version and the service behind it."""

from __future__ import annotations

from transom.kit.goquote import go_quote
from transom.machinery.field import invalid, not_supported, required
from transom.machinery.validation.checks import check_each, decoded_size, dns_subdomain
from transom.machinery.validation.meta import (
    validate_any_object_meta,
    validate_any_object_meta_update,
)
from transom.machinery.validation.names import (
    is_dns1035_label,
    is_path_segment_name,
    is_valid_port_num,
)
from transom.machinery.validation.rules import Errors, Object, ValidationRules

_STATUSES = ("True", "False", "Unknown")


def validate_api_service(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    group, version, service = spec.get("group", ""), spec.get("version", ""), spec.get("service")
    bundle, insecure = (
        decoded_size(spec.get("caBundle") or ""),
        bool(spec.get("insecureSkipTLSVerify")),
    )

    def name_rule(name: str, prefix: bool) -> list[str]:
        expected = f"{version}.{group}"
        return is_path_segment_name(name) or (
            []
            if name == expected
            else [f'must be `spec.version+"."+spec.group`: {go_quote(expected)}']
        )

    errors = validate_any_object_meta(obj["metadata"], False, name_rule)
    if group:
        errors += dns_subdomain(group, "spec.group")
    elif version != "v1":
        errors.append(
            required("spec.group", "only v1 may have an empty group and it better be legacy kube")
        )
    errors += check_each("spec.version", version, is_dns1035_label(version))
    for name, limit in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        value = spec.get(name, 0)
        if not 0 < value <= limit:
            errors.append(invalid(f"spec.{name}", value, f"must be positive and less than {limit}"))
    path = "spec.insecureSkipTLSVerify"
    if service is None:
        if bundle:
            errors.append(
                invalid(
                    "spec.caBundle", f"{bundle} bytes", "local APIServices may not have a caBundle"
                )
            )
        if insecure:
            errors.append(
                invalid(path, True, "local APIServices may not have insecureSkipTLSVerify")
            )
        return errors
    errors += [
        required(f"spec.service.{name}") for name in ("namespace", "name") if not service.get(name)
    ]
    port = service.get("port", 443)
    if messages := is_valid_port_num(port):
        errors.append(
            invalid("spec.service.port", port, "port is not valid: " + ", ".join(messages))
        )
    if insecure and bundle:
        errors.append(invalid(path, True, "may not be true if caBundle is present"))
    return errors


def validate_api_service_update(new: Object, old: Object) -> Errors:
    return validate_any_object_meta_update(new["metadata"], old["metadata"]) + validate_api_service(
        new
    )


def validate_api_service_status_update(new: Object, old: Object) -> Errors:
    errors = validate_any_object_meta_update(new["metadata"], old["metadata"])
    return errors + [
        not_supported(f"status.conditions[{i}].status", condition.get("status", ""), _STATUSES)
        for i, condition in enumerate((new.get("status") or {}).get("conditions") or ())
        if condition.get("status") not in _STATUSES
    ]


VALIDATORS = {
    "apiregistration.k8s.io/APIService": ValidationRules(
        validate_api_service, validate_api_service_update, validate_api_service_status_update
    ),
}
