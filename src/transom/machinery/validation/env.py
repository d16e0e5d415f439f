"""Environment variables and the downward API: the sources of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transom.machinery.field import invalid, not_supported, required
from transom.machinery.quantity import parse_quantity
from transom.machinery.validation.common import (
    all_invalid,
    check_dns_label,
    check_no_backsteps,
)
from transom.machinery.validation.names import (
    is_config_map_key,
    is_env_var_name,
    is_qualified_name,
    is_relaxed_env_var_name,
    name_is_dns_subdomain,
)
from transom.machinery.validation.podoptions import BASE_OPTIONS, PodOptions
from transom.machinery.validation.rules import Errors

ENV_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.podIP",
    "status.podIPs",
)
VOLUME_FIELDS = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
# Accepted since 1.28; not in the list of supported values, whose text is that of 1.20.
_LATER_ENV_FIELDS = ("status.hostIPs",)

_FIELD_LABELS = frozenset(
    (
        *ENV_FIELDS,
        *_LATER_ENV_FIELDS,
        *VOLUME_FIELDS,
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.phase",
    )
)
_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_BYTE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_CPU = (("1m", "1"), "only divisor's values 1m and 1 are supported with the cpu resource")
_BYTES_TEXT = f"only divisor's values {', '.join(_BYTE_DIVISORS)} are supported with the "
_DIVISORS: dict[str, tuple[Sequence[str], str]] = {
    "cpu": _CPU,
    "memory": (_BYTE_DIVISORS, _BYTES_TEXT + "memory resource"),
    "ephemeral-storage": (_BYTE_DIVISORS, _BYTES_TEXT + "local ephemeral storage resource"),
}


_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")

_HUGE_PAGE_DIVISORS = (_BYTE_DIVISORS, _BYTES_TEXT + "hugepages resource")


def check_env(
    variables: list[dict[str, Any]], path: str, errs: Errors, options: PodOptions = BASE_OPTIONS
) -> None:
    is_name = is_relaxed_env_var_name if options.relaxed_env else is_env_var_name
    for i, variable in enumerate(variables):
        name = variable.get("name")
        if not name:
            errs.append(required(f"{path}[{i}].name"))
        else:
            messages = is_name(name)
            if messages:
                all_invalid(messages, name, f"{path}[{i}].name", errs)
        source = variable.get("valueFrom")
        if source is not None:
            _check_value_from(
                source, variable.get("value", ""), f"{path}[{i}].valueFrom", errs, options
            )


def _check_value_from(
    source: dict[str, Any], value: str, path: str, errs: Errors, options: PodOptions
) -> None:
    count = 0
    if (ref := source.get("fieldRef")) is not None:
        count += 1
        check_field_ref(ref, ENV_FIELDS, _LATER_ENV_FIELDS, f"{path}.fieldRef", errs)
    if (ref := source.get("resourceFieldRef")) is not None:
        count += 1
        check_resource_field_ref(
            ref, False, f"{path}.resourceFieldRef", errs, huge_pages=options.newer
        )
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if (ref := source.get(kind)) is not None:
            count += 1
            _check_key_selector(ref, f"{path}.{kind}", errs)
    if options.newer and (ref := source.get("fileKeyRef")) is not None:
        count += 1
        _check_file_key(ref, f"{path}.fileKeyRef", errs)
    if count == 0:
        known = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        if options.env_files:
            known = (
                "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
            )
        errs.append(invalid(path, "", f"must specify one of: {known}"))
    elif value:
        errs.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif count > 1:
        errs.append(invalid(path, "", "may not have more than one field specified at a time"))


def _check_file_key(ref: dict[str, Any], path: str, errs: Errors) -> None:
    """A variable from a file of a volume."""
    key, volume, file = ref.get("key", ""), ref.get("volumeName", ""), ref.get("path", "")
    if not key:
        errs.append(required(f"{path}.key"))
    else:
        all_invalid(is_relaxed_env_var_name(key), key, f"{path}.key", errs)
    if not volume:
        errs.append(required(f"{path}.volumeName"))
    else:
        check_dns_label(volume, f"{path}.volumeName", errs)
    if not file:
        errs.append(required(f"{path}.path"))
    else:
        check_no_backsteps(file, f"{path}.path", errs)


def _check_key_selector(ref: dict[str, Any], path: str, errs: Errors) -> None:
    name, key = ref.get("name", ""), ref.get("key")
    all_invalid(name_is_dns_subdomain(name, False), name, f"{path}.name", errs)
    if not key:
        errs.append(required(f"{path}.key"))
    else:
        all_invalid(is_config_map_key(key), key, f"{path}.key", errs)


def split_subscript(path: str) -> tuple[str, str] | None:
    """`metadata.labels['a']` -> ("metadata.labels", "a"); None without a subscript."""
    if not path.endswith("']"):
        return None
    head, found, subscript = path[:-2].partition("['")
    return (head, subscript) if found and head else None


def _label_error(version: str, label: str) -> str:
    """Why the downward API does not support this pod field; empty if it does."""
    if version != "v1":
        return f"unsupported pod version: {version}"
    split = split_subscript(label)
    if split is not None:
        known = split[0] in ("metadata.annotations", "metadata.labels")
        return "" if known else f"field label does not support subscript: {label}"
    known = label in _FIELD_LABELS or label == "spec.host"
    return "" if known else f"field label not supported: {label}"


def check_field_ref(
    ref: dict[str, Any], supported: Sequence[str], also: Sequence[str], path: str, errs: Errors
) -> None:
    for name in ("apiVersion", "fieldPath"):
        if not ref.get(name):
            errs.append(required(f"{path}.{name}"))
            return
    label = ref["fieldPath"]
    problem = _label_error(ref["apiVersion"], label)
    if problem:
        errs.append(invalid(f"{path}.fieldPath", label, f"error converting fieldPath: {problem}"))
        return
    split = split_subscript(label)
    if split is not None:
        head, subscript = split
        key = subscript.lower() if head == "metadata.annotations" else subscript
        all_invalid(is_qualified_name(key), subscript, path, errs)
        return
    if label == "spec.host":  # the name in old clients
        label = "spec.nodeName"
    if label not in supported and label not in also:
        errs.append(not_supported(f"{path}.fieldPath", label, supported))


def check_resource_field_ref(
    ref: dict[str, Any], in_volume: bool, path: str, errs: Errors, *, huge_pages: bool = False
) -> None:
    resource = ref.get("resource", "")
    if in_volume and not ref.get("containerName"):
        errs.append(required(f"{path}.containerName"))
    elif not resource:
        errs.append(required(f"{path}.resource"))
    elif resource not in _RESOURCES and not (huge_pages and resource.startswith(_HUGE_PAGES)):
        errs.append(not_supported(f"{path}.resource", resource, _RESOURCES))
    divisor = ref.get("divisor")
    if not divisor or divisor == "0":
        return
    amount = parse_quantity(divisor)
    rule = _DIVISORS.get(resource.partition(".")[2]) if resource in _RESOURCES else None
    if huge_pages and resource.startswith(_HUGE_PAGES):
        rule = _HUGE_PAGE_DIVISORS
    if rule is not None and not amount.is_zero and str(amount) not in rule[0]:
        errs.append(invalid(f"{path}.divisor", resource, rule[1]))


def check_env_from(
    sources: list[dict[str, Any]], path: str, errs: Errors, options: PodOptions = BASE_OPTIONS
) -> None:
    is_name = is_relaxed_env_var_name if options.relaxed_env else is_env_var_name
    for i, source in enumerate(sources):
        prefix = source.get("prefix")
        if prefix:
            all_invalid(is_name(prefix), prefix, f"{path}[{i}].prefix", errs)
        count = 0
        for kind in ("configMapRef", "secretRef"):
            ref = source.get(kind)
            if ref is None:
                continue
            count += 1
            name = ref.get("name")
            if not name:
                errs.append(required(f"{path}[{i}].{kind}.name"))
            else:
                all_invalid(
                    name_is_dns_subdomain(name, True), name, f"{path}[{i}].{kind}.name", errs
                )
        if count == 0:
            errs.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif count > 1:
            errs.append(invalid(path, "", "may not have more than one field specified at a time"))
