"""ConfigMap, Secret, Namespace and ServiceAccount: names and data, no behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from transom.machinery.field import forbidden, invalid, required, too_long
from transom.machinery.validation.checks import check_each, decoded_base64, decoded_size, parse_json
from transom.machinery.validation.meta import (
    STANDARD_FINALIZERS,
    immutable,
    validate_finalizer_name,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import (
    byte_len,
    is_config_map_key,
    name_is_dns_label,
    name_is_dns_subdomain,
)
from transom.machinery.validation.rules import Errors, Object, ValidationRules

SIZE_LIMIT = 1024 * 1024
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_FROZEN = "field is immutable when `immutable` is set"


def _keys(data: Mapping[str, Any], path: str) -> Errors:
    return [
        error for key in data for error in check_each(f"{path}[{key}]", key, is_config_map_key(key))
    ]


def _frozen(new: Object, old: Object, fields: tuple[str, ...]) -> Errors:
    if not old.get("immutable"):
        return []
    errors = [] if new.get("immutable") else [forbidden("immutable", _FROZEN)]
    return errors + [forbidden(name, _FROZEN) for name in fields if new.get(name) != old.get(name)]


def validate_config_map(obj: Object) -> Errors:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    errors = validate_object_meta(obj["metadata"], True, name_is_dns_subdomain)
    size = 0
    for key, value in data.items():
        errors += check_each(f"data[{key}]", key, is_config_map_key(key))
        if key in binary:
            errors.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += byte_len(value)
    errors += _keys(binary, "binaryData")
    size += sum(map(decoded_size, binary.values()))
    if size > SIZE_LIMIT:
        errors.append(too_long("[]", "", SIZE_LIMIT))
    return errors


def validate_config_map_update(new: Object, old: Object) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    return errors + _frozen(new, old, ("data", "binaryData")) + validate_config_map(new)


def _service_account_token(secret: Object, data: Mapping[str, str]) -> Errors:
    if not (secret["metadata"].get("annotations") or {}).get(SERVICE_ACCOUNT_NAME):
        return [required(f"metadata.annotations[{SERVICE_ACCOUNT_NAME}]")]
    return []


def _json_under(key: str) -> Callable[[Object, Mapping[str, str]], Errors]:
    def check(secret: Object, data: Mapping[str, str]) -> Errors:
        if key not in data:
            return [required(f"data[{key}]")]
        _, problem = parse_json(decoded_base64(data[key]), dict, "map[string]interface {}")
        return [invalid(f"data[{key}]", "<secret contents redacted>", problem)] if problem else []

    return check


def _basic_auth(secret: Object, data: Mapping[str, str]) -> Errors:
    if "username" in data or "password" in data:
        return []
    return [required("data[%s][username]"), required("data[%s][password]")]


def _ssh_auth(secret: Object, data: Mapping[str, str]) -> Errors:
    return [] if data.get("ssh-privatekey") else [required("data[%s][ssh-privatekey]")]


def _tls(secret: Object, data: Mapping[str, str]) -> Errors:
    return [required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data]


# Rules for the data of secrets of known types; other types may hold any data.
_BY_TYPE: dict[str, Callable[[Object, Mapping[str, str]], Errors]] = {
    "kubernetes.io/service-account-token": _service_account_token,
    "kubernetes.io/dockercfg": _json_under(".dockercfg"),
    "kubernetes.io/dockerconfigjson": _json_under(".dockerconfigjson"),
    "kubernetes.io/basic-auth": _basic_auth,
    "kubernetes.io/ssh-auth": _ssh_auth,
    "kubernetes.io/tls": _tls,
}


def validate_secret(secret: Object) -> Errors:
    data = secret.get("data") or {}
    errors = validate_object_meta(secret["metadata"], True, name_is_dns_subdomain) + _keys(
        data, "data"
    )
    if sum(map(decoded_size, data.values())) > SIZE_LIMIT:
        errors.append(too_long("data", "", SIZE_LIMIT))
    check = _BY_TYPE.get(secret.get("type", ""))
    return errors + check(secret, data) if check else errors


def validate_secret_update(new: Object, old: Object) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    errors += immutable(new.get("type", ""), old.get("type", ""), "type")
    return errors + _frozen(new, old, ("data",)) + validate_secret(new)


def _namespace_finalizer(name: str, path: str) -> Errors:
    errors = validate_finalizer_name(name, path)
    if "/" not in name and name not in STANDARD_FINALIZERS:
        errors.append(
            invalid(
                path, name, "name is neither a standard finalizer name nor is it fully qualified"
            )
        )
    return errors


def validate_namespace(obj: Object) -> Errors:
    errors = validate_object_meta(obj["metadata"], False, name_is_dns_label)
    for name in (obj.get("spec") or {}).get("finalizers") or ():
        errors += _namespace_finalizer(name, "spec.finalizers")
    return errors


def validate_namespace_update(new: Object, old: Object) -> Errors:
    return validate_namespace(new) + validate_object_meta_update(new["metadata"], old["metadata"])


def validate_namespace_status_update(new: Object, old: Object) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    phase = (new.get("status") or {}).get("phase", "")
    if not new["metadata"].get("deletionTimestamp"):
        if phase != "Active":
            errors.append(
                invalid(
                    "status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty"
                )
            )
    elif phase != "Terminating":
        errors.append(
            invalid(
                "status.Phase",
                phase,
                "may only be 'Terminating' if `deletionTimestamp` is not empty",
            )
        )
    return errors


def finalize_namespace(new: Object, old: Object) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    for i, name in enumerate((new.get("spec") or {}).get("finalizers") or ()):
        errors += _namespace_finalizer(name, f"spec.finalizers[{i}]")
    return errors


def validate_service_account(obj: Object) -> Errors:
    return validate_object_meta(obj["metadata"], True, name_is_dns_subdomain)


def validate_service_account_update(new: Object, old: Object) -> Errors:
    return validate_object_meta_update(new["metadata"], old["metadata"]) + validate_service_account(
        new
    )


VALIDATORS = {
    "/ConfigMap": ValidationRules(validate_config_map, validate_config_map_update),
    "/Secret": ValidationRules(validate_secret, validate_secret_update),
    "/Namespace": ValidationRules(
        validate_namespace,
        validate_namespace_update,
        validate_namespace_status_update,
        {"finalize": finalize_namespace},
    ),
    "/ServiceAccount": ValidationRules(validate_service_account, validate_service_account_update),
}
