"""Workloads that keep the pods of a template running, and their template and history objects."""

from __future__ import annotations

from typing import Any

import orjson

from transom.kit.lazy_dataclass import dataclass
from transom.machinery.field import (
    FieldError,
    GoText,
    forbidden,
    go_bytes,
    invalid,
    not_supported,
    required,
)
from transom.machinery.integers import parse_int
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.selectors import LabelSelector, SelectorError, from_map, from_object
from transom.machinery.validation import godump
from transom.machinery.validation.checks import dns_label
from transom.machinery.validation.claim import ClaimOptions, validate_claim_spec
from transom.machinery.validation.common import check_nonnegative, check_nonnegative_fields
from transom.machinery.validation.meta import (
    immutable,
    validate_label_selector,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import (
    is_valid_percent,
    name_is_dns_label,
    name_is_dns_subdomain,
)
from transom.machinery.validation.podoptions import BASE_OPTIONS, PodOptions, template_rules
from transom.machinery.validation.podspec import check_pod_template, check_template_metadata
from transom.machinery.validation.rules import Errors, Object, RulesFactory, ValidationRules
from transom.machinery.validation.workload_status import (
    validate_daemon_set_status_update,
    validate_deployment_status_update,
    validate_replica_status_update,
    validate_stateful_set_status_update,
)

_NO_MATCH = "`selector` does not match template `labels`"
_NON_CONVERTIBLE = "non-convertible.kubernetes.io"
_STATEFULSET_FIXED = (
    "updates to statefulset spec for fields other than 'replicas', 'template', and "
    "'updateStrategy' are forbidden"
)
# The last three came later; they may be changed.
_STATEFULSET_MUTABLE = frozenset(
    (
        "replicas",
        "template",
        "updateStrategy",
        "ordinals",
        "minReadySeconds",
        "persistentVolumeClaimRetentionPolicy",
    )
)
_RETENTION = ("Retain", "Delete")


def _spec(obj: Object) -> dict[str, Any]:
    return obj.get("spec") or {}


def _meta(obj: Object) -> dict[str, Any]:
    return obj.get("metadata") or {}


def _create_meta(obj: Object) -> Errors:
    return validate_object_meta(_meta(obj), True, name_is_dns_subdomain, "metadata")


def _update_meta(new: Object, old: Object) -> Errors:
    return validate_object_meta_update(_meta(new), _meta(old), "metadata")


def immutable_selector(new: Object, old: Object) -> Errors:
    selector, before = _spec(new).get("selector"), _spec(old).get("selector")
    shown = None if selector is None else godump.dump_label_selector(selector)
    return immutable(selector, before, "spec.selector", shown)


def parsed_selector(selector: dict[str, Any] | None) -> LabelSelector | None:
    """The selector ready for matching, None if it is malformed. A missing one matches nothing."""
    try:
        return from_object(selector)
    except SelectorError:
        return None


# --- templates


def _check_labels_match(
    selector: LabelSelector, template: dict[str, Any], path: str, errs: Errors
) -> None:
    labels = (template.get("metadata") or {}).get("labels")
    if not selector.matches(labels or {}):
        errs.append(invalid(f"{path}.metadata.labels", godump.dump_string_map(labels), _NO_MATCH))


def _check_always_running(template: dict[str, Any], owner: str, path: str, errs: Errors) -> None:
    """Templates of controllers that restart terminated pods."""
    spec = template.get("spec") or {}
    policy = spec.get("restartPolicy", "")
    if policy != "Always":
        errs.append(not_supported(f"{path}.spec.restartPolicy", policy, ("Always",)))
    if spec.get("activeDeadlineSeconds") is not None:
        errs.append(
            forbidden(
                f"{path}.spec.activeDeadlineSeconds",
                f"activeDeadlineSeconds in {owner} is not Supported",
            )
        )


def _check_read_only_disks(template: dict[str, Any], path: str, errs: Errors) -> None:
    for i, volume in enumerate((template.get("spec") or {}).get("volumes") or ()):
        disk = volume.get("gcePersistentDisk")
        if disk is not None and not disk.get("readOnly"):
            errs.append(
                invalid(
                    f"{path}.spec.volumes[{i}].gcePersistentDisk.readOnly",
                    False,
                    "must be true for replicated pods > 1; GCE PD can only be mounted on "
                    "multiple machines if it is "
                    "read-only",
                )
            )


def _check_replicated_template(
    template: dict[str, Any],
    selector: LabelSelector,
    replicas: int,
    owner: str,
    errs: Errors,
    options: PodOptions = BASE_OPTIONS,
) -> None:
    path = "spec.template"
    if not selector.empty:
        _check_labels_match(selector, template, path, errs)
    check_pod_template(template, path, errs, options=options)
    if replicas > 1 and options.checks_disks:
        _check_read_only_disks(template, path, errs)
    _check_always_running(template, owner, path, errs)


def _check_selector(spec: dict[str, Any], owner: str, errs: Errors) -> None:
    selector = spec.get("selector")
    if selector is None:
        errs.append(required("spec.selector"))
        return
    errs += validate_label_selector(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errs.append(
            invalid(
                "spec.selector",
                godump.dump_label_selector(selector),
                f"empty selector is invalid for {owner}",
            )
        )


def _check_selector_and_template(
    spec: dict[str, Any], errs: Errors, options: PodOptions = BASE_OPTIONS
) -> None:
    _check_selector(spec, "deployment", errs)
    selector = parsed_selector(spec.get("selector"))
    if selector is None:
        errs.append(
            invalid(
                "spec.selector",
                godump.dump_label_selector(spec["selector"]),
                "invalid label selector",
            )
        )
    else:
        _check_replicated_template(
            spec.get("template") or {},
            selector,
            spec.get("replicas", 0),
            "ReplicaSet",
            errs,
            options=options,
        )


def validate_pod_template(obj: Object, options: PodOptions = BASE_OPTIONS) -> Errors:
    errs = _create_meta(obj)
    check_pod_template(obj.get("template") or {}, "template", errs, options=options)
    return errs


def validate_pod_template_update(
    new: Object, old: Object, options: PodOptions = BASE_OPTIONS
) -> Errors:
    errs = _update_meta(new, old)
    check_pod_template(new.get("template") or {}, "template", errs, options=options)
    return errs


# --- ReplicationController


def _check_replication_controller_spec(
    spec: dict[str, Any], errs: Errors, options: PodOptions = BASE_OPTIONS
) -> None:
    check_nonnegative(spec.get("minReadySeconds", 0), "spec.minReadySeconds", errs)
    if not spec.get("selector"):
        errs.append(required("spec.selector"))
    check_nonnegative(spec.get("replicas", 0), "spec.replicas", errs)
    template = spec.get("template")
    if template is None:
        errs.append(required("spec.template"))
    else:
        _check_replicated_template(
            template,
            from_map(spec.get("selector")),
            spec.get("replicas", 0),
            "ReplicationController",
            errs,
            options=options,
        )


def validate_replication_controller(obj: Object, options: PodOptions = BASE_OPTIONS) -> Errors:
    errs = _create_meta(obj)
    _check_replication_controller_spec(_spec(obj), errs, options=options)
    return errs


def validate_replication_controller_update(
    new: Object, old: Object, options: PodOptions = BASE_OPTIONS
) -> Errors:
    errs = validate_replication_controller(new, options=options) + _update_meta(new, old)
    _check_replication_controller_spec(_spec(new), errs, options=options)
    for key, value in (_meta(old).get("annotations") or {}).items():
        if key.startswith(_NON_CONVERTIBLE) and key.count("/") == 1:
            _check_non_convertible(key.partition("/")[2], value, _spec(new), _spec(old), errs)
    return errs


def _check_non_convertible(
    field: str, value: str, new: dict[str, Any], old: dict[str, Any], errs: Errors
) -> None:
    """Annotations list fields of a newer version that this kind cannot represent; those are
    immutable.
    """
    if "selector" not in field:
        errs.append(FieldError("NotFound", field, value, "unknown non-convertible field"))
    elif new.get("selector") != old.get("selector"):
        shown = godump.dump_string_map(new.get("selector"))
        errs.append(invalid("spec.selector", shown, "cannot update non-convertible selector"))


# --- ReplicaSet


def _check_replica_set_spec(
    spec: dict[str, Any], errs: Errors, options: PodOptions = BASE_OPTIONS
) -> None:
    check_nonnegative_fields(spec, ("replicas", "minReadySeconds"), "spec", errs)
    _check_selector_and_template(spec, errs, options=options)


def validate_replica_set(obj: Object, options: PodOptions = BASE_OPTIONS) -> Errors:
    errs = _create_meta(obj)
    _check_replica_set_spec(_spec(obj), errs, options=options)
    return errs


def validate_replica_set_update(
    new: Object, old: Object, options: PodOptions = BASE_OPTIONS
) -> Errors:
    return validate_replica_set_update_extensions(new, old, options=options) + immutable_selector(
        new, old
    )


def validate_replica_set_update_extensions(
    new: Object, old: Object, options: PodOptions = BASE_OPTIONS
) -> Errors:
    """The first betas allow a change of the selector."""
    errs = validate_replica_set(new, options=options) + _update_meta(new, old)
    _check_replica_set_spec(_spec(new), errs, options=options)
    return errs


# --- Deployment


def _check_deployment_spec(
    spec: dict[str, Any], errs: Errors, options: PodOptions = BASE_OPTIONS
) -> None:
    check_nonnegative(spec.get("replicas", 0), "spec.replicas", errs)
    _check_selector_and_template(spec, errs, options=options)
    _check_deployment_strategy(spec.get("strategy") or {}, "spec.strategy", errs)
    check_nonnegative_fields(
        spec, ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"), "spec", errs
    )
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        errs.append(
            invalid(
                "spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"
            )
        )


def _check_deployment_strategy(strategy: dict[str, Any], path: str, errs: Errors) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            text = "may not be specified when strategy `type` is 'Recreate'"
            errs.append(forbidden(f"{path}.rollingUpdate", text))
    elif kind != "RollingUpdate":
        shown = godump.go_dump("apps.DeploymentStrategy", strategy)
        errs.append(not_supported(path, shown, ("Recreate", "RollingUpdate")))
    elif rolling is None:
        errs.append(required(f"{path}.rollingUpdate", "this should be defaulted and never be nil"))
    else:
        unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        where = f"{path}.rollingUpdate.maxUnavailable"
        check_int_or_percent(unavailable, where, errs)
        check_int_or_percent(surge, f"{path}.rollingUpdate.maxSurge", errs)
        if int_or_percent_value(unavailable) == 0 and int_or_percent_value(surge) == 0:
            errs.append(
                invalid(
                    where,
                    godump.dump_int_or_string(unavailable),
                    "may not be 0 when `maxSurge` is 0",
                )
            )
        check_at_most_100_percent(unavailable, where, errs)


def check_int_or_percent(value: int | str, path: str, errs: Errors) -> None:
    if isinstance(value, int):
        check_nonnegative(value, path, errs)
        return
    for message in is_valid_percent(value):
        errs.append(invalid(path, godump.dump_int_or_string(value), message))


def int_or_percent_value(value: int | str) -> int:
    """The number in `3` or `25%`; anything else counts as zero."""
    if isinstance(value, int):
        return value
    if not is_valid_percent(value):
        return parse_int(value[:-1])
    return parse_int(value) if value.lstrip("+-").isdecimal() else 0


def check_at_most_100_percent(value: int | str, path: str, errs: Errors) -> None:
    if isinstance(value, str) and not is_valid_percent(value) and parse_int(value[:-1]) > 100:
        errs.append(
            invalid(path, godump.dump_int_or_string(value), "must not be greater than 100%")
        )


def validate_deployment(obj: Object, options: PodOptions = BASE_OPTIONS) -> Errors:
    errs = _create_meta(obj)
    _check_deployment_spec(_spec(obj), errs, options=options)
    return errs


def validate_deployment_update(
    new: Object, old: Object, options: PodOptions = BASE_OPTIONS
) -> Errors:
    return validate_deployment_update_v1beta1(new, old, options=options) + immutable_selector(
        new, old
    )


def validate_deployment_update_v1beta1(
    new: Object, old: Object, options: PodOptions = BASE_OPTIONS
) -> Errors:
    errs = _update_meta(new, old)
    _check_deployment_spec(_spec(new), errs, options=options)
    return errs


# --- DaemonSet


def _check_daemon_set_spec(
    spec: dict[str, Any], errs: Errors, options: PodOptions = BASE_OPTIONS
) -> None:
    selector, template = spec.get("selector"), spec.get("template") or {}
    path = "spec.template"
    errs += validate_label_selector(selector, "spec.selector")
    ready = parsed_selector(selector)
    if ready is not None:
        _check_labels_match(ready, template, path, errs)
    if (
        selector is not None
        and not selector.get("matchLabels")
        and not selector.get("matchExpressions")
    ):
        shown = godump.dump_label_selector(selector)
        errs.append(invalid("spec.selector", shown, "empty selector is invalid for daemonset"))
    check_pod_template(template, path, errs, options=options)
    if options.checks_disks:
        _check_read_only_disks(template, path, errs)
    _check_always_running(template, "DaemonSet", path, errs)
    check_nonnegative(spec.get("minReadySeconds", 0), "spec.minReadySeconds", errs)
    strategy = spec.get("updateStrategy") or {}
    _check_daemon_set_strategy(strategy, "spec.updateStrategy", errs, options)
    check_nonnegative_fields(spec, ("revisionHistoryLimit",), "spec", errs)


def _check_daemon_set_strategy(
    strategy: dict[str, Any], path: str, errs: Errors, options: PodOptions
) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        return
    if kind != "RollingUpdate":
        shown = godump.go_dump("apps.DaemonSetUpdateStrategy", strategy)
        errs.append(not_supported(path, shown, ("RollingUpdate", "OnDelete")))
        return
    if rolling is None:
        errs.append(required(f"{path}.rollingUpdate"))
        return
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    where, surge_path = (f"{path}.rollingUpdate.{name}" for name in ("maxUnavailable", "maxSurge"))
    check_int_or_percent(unavailable, where, errs)
    check_int_or_percent(surge, surge_path, errs)
    newer = has_behaviour(options.release, "DaemonSetSurge")
    if newer:
        check_at_most_100_percent(unavailable, where, errs)
        check_at_most_100_percent(surge, surge_path, errs)
    some, more = int_or_percent_value(unavailable), int_or_percent_value(surge)
    if some and more:
        text = "may not be set when maxUnavailable is non-zero"
        errs.append(invalid(surge_path, godump.dump_int_or_string(surge), text))
    if not some and not more:
        errs.append(
            required(where, "cannot be 0 when maxSurge is 0")
            if newer
            else invalid(where, godump.dump_int_or_string(unavailable), "cannot be 0")
        )
    if not newer:
        check_at_most_100_percent(unavailable, where, errs)
        check_at_most_100_percent(surge, surge_path, errs)


def validate_daemon_set(obj: Object, options: PodOptions = BASE_OPTIONS) -> Errors:
    errs = _create_meta(obj)
    _check_daemon_set_spec(_spec(obj), errs, options=options)
    return errs


def validate_daemon_set_update(
    new: Object, old: Object, options: PodOptions = BASE_OPTIONS
) -> Errors:
    if has_behaviour(options.release, "DaemonSetSelectorFirst"):
        errs = _update_meta(new, old) + immutable_selector(new, old)
        _check_daemon_set_spec(_spec(new), errs, options=options)
        return errs
    return validate_daemon_set_update_extensions(new, old, options=options) + immutable_selector(
        new, old
    )


def validate_daemon_set_update_extensions(
    new: Object, old: Object, options: PodOptions = BASE_OPTIONS
) -> Errors:
    errs = validate_daemon_set(new, options=options) + _update_meta(new, old)
    _check_daemon_set_spec(_spec(new), errs, options=options)
    return errs


# --- StatefulSet


@dataclass(frozen=True, slots=True)
class StatefulSetChecks:
    """What releases after 1.20 check as well."""

    claims: ClaimOptions | None = None  # of the claim templates, if they are checked
    service_name: bool = False
    template: bool = False
    label_name: bool = False  # the names of new ones are labels, because those of their pods are


BASE_CHECKS = StatefulSetChecks()


def check_stateful_set_spec(
    spec: dict[str, Any],
    errs: Errors,
    options: PodOptions = BASE_OPTIONS,
    checks: StatefulSetChecks = BASE_CHECKS,
) -> None:
    policy = spec.get("podManagementPolicy", "")
    if not policy:
        errs.append(required("spec.podManagementPolicy"))
    elif policy not in ("OrderedReady", "Parallel"):
        errs.append(
            invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
        )
    _check_stateful_set_strategy(spec.get("updateStrategy") or {}, "spec.updateStrategy", errs)
    for name, value in (spec.get("persistentVolumeClaimRetentionPolicy") or {}).items():
        if value not in _RETENTION:
            errs.append(
                not_supported(
                    f"spec.persistentVolumeClaimRetentionPolicy.{name}", value, _RETENTION
                )
            )
    if checks.claims is not None:
        for i, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            where = f"spec.volumeClaimTemplates[{i}].spec"
            errs += validate_claim_spec(claim.get("spec") or {}, where, checks.claims)
    check_nonnegative_fields(spec, ("replicas", "minReadySeconds"), "spec", errs)
    check_nonnegative((spec.get("ordinals") or {}).get("start", 0), "spec.ordinals.start", errs)
    if checks.service_name and spec.get("serviceName"):
        errs += dns_label(spec["serviceName"], "spec.serviceName")
    _check_selector(spec, "statefulset", errs)
    template = spec.get("template") or {}
    selector = parsed_selector(spec.get("selector"))
    if selector is None:
        errs.append(invalid("spec.selector", godump.dump_label_selector(spec["selector"]), ""))
    else:
        if not selector.empty:
            _check_labels_match(selector, template, "spec.template", errs)
        if checks.template:
            check_pod_template(_template_of_a_pod(spec), "spec.template", errs, options=options)
        meta, pod_spec = template.get("metadata") or {}, template.get("spec") or {}
        check_template_metadata(meta, pod_spec, "spec.template", errs, options=options)
    _check_always_running(template, "StatefulSet", "spec.template", errs)


def _template_of_a_pod(spec: dict[str, Any]) -> dict[str, Any]:
    """The template with the volumes of the claims that the StatefulSet will create, without the
    names that it sets.
    """
    template = spec.get("template") or {}
    claims: dict[str, Any] = {}
    for claim in spec.get("volumeClaimTemplates") or ():
        name = (claim.get("metadata") or {}).get("name", "")
        claims[name] = {"name": name, "persistentVolumeClaim": {"claimName": name}}
    pod = dict(template.get("spec") or {})
    pod.pop("subdomain", None)
    pod.pop("hostname", None)
    if claims:
        others = (v for v in pod.get("volumes") or () if v.get("name", "") not in claims)
        pod["volumes"] = [*claims.values(), *others]
    return {**template, "spec": pod}


def _check_stateful_set_strategy(strategy: dict[str, Any], path: str, errs: Errors) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if not kind:
        errs.append(required(path))
    elif kind == "OnDelete":
        if rolling is not None:
            errs.append(
                invalid(
                    f"{path}.rollingUpdate",
                    godump.go_dump("apps.RollingUpdateStatefulSetStrategy", rolling),
                    "only allowed for updateStrategy 'RollingUpdate'",
                )
            )
    elif kind != "RollingUpdate":
        errs.append(
            invalid(
                path,
                godump.go_dump("apps.StatefulSetUpdateStrategy", strategy),
                "must be 'RollingUpdate' or 'OnDelete'",
            )
        )
    elif rolling is not None:
        check_nonnegative(rolling.get("partition", 0), f"{path}.rollingUpdate.partition", errs)
        unavailable = rolling.get("maxUnavailable")
        if unavailable is None:
            return
        where = f"{path}.rollingUpdate.maxUnavailable"
        check_int_or_percent(unavailable, where, errs)
        if int_or_percent_value(unavailable) == 0:
            errs.append(invalid(where, godump.dump_int_or_string(unavailable), "cannot be 0"))
        check_at_most_100_percent(unavailable, where, errs)


def validate_stateful_set(
    obj: Object,
    options: PodOptions = BASE_OPTIONS,
    checks: StatefulSetChecks = BASE_CHECKS,
) -> Errors:
    if checks.label_name:
        errs = validate_object_meta(_meta(obj), True, name_is_dns_label, "metadata")
    else:
        errs = _create_meta(obj)
    check_stateful_set_spec(_spec(obj), errs, options, checks)
    return errs


def validate_stateful_set_update(
    new: Object,
    old: Object,
    options: PodOptions = BASE_OPTIONS,
    checks: StatefulSetChecks = BASE_CHECKS,
) -> Errors:
    errs = validate_stateful_set(new, options, checks) + _update_meta(new, old)
    spec, before = _spec(new), _spec(old)
    if any(spec.get(name) != before.get(name) for name in {*spec, *before} - _STATEFULSET_MUTABLE):
        errs.append(forbidden("spec", _STATEFULSET_FIXED))
    check_nonnegative(spec.get("replicas", 0), "spec.replicas", errs)
    return errs


# --- ControllerRevision


def validate_controller_revision(obj: Object) -> Errors:
    errs = _create_meta(obj)
    if obj.get("data") is None:
        errs.append(required("data", "data is mandatory"))
    check_nonnegative(obj.get("revision", 0), "revision", errs)
    return errs


def validate_controller_revision_update(new: Object, old: Object) -> Errors:
    errs = _update_meta(new, old) + validate_controller_revision(new)
    if new.get("data") != old.get("data"):
        errs += immutable(new.get("data"), old.get("data"), "data", _raw(new.get("data")))
    return errs


def _raw(data: Any) -> GoText | None:
    """Data of unknown type as Go prints it: byte by byte."""
    if data is None:
        return None
    raw = go_bytes(orjson.dumps(data))
    return GoText(
        'runtime.Unknown{TypeMeta:runtime.TypeMeta{APIVersion:"", Kind:""}, '
        f'Raw:[]uint8{{{raw}}}, ContentEncoding:"", ContentType:"application/json"}}'
    )


_DEPLOYMENT_V1BETA1 = template_rules(
    validate_deployment, validate_deployment_update_v1beta1, validate_deployment_status_update
)
VALIDATORS: dict[str, ValidationRules | RulesFactory] = {
    "/PodTemplate": template_rules(validate_pod_template, validate_pod_template_update),
    "/ReplicationController": template_rules(
        validate_replication_controller,
        validate_replication_controller_update,
        validate_replica_status_update,
    ),
    "apps/ReplicaSet": template_rules(
        validate_replica_set, validate_replica_set_update, validate_replica_status_update
    ),
    "apps/Deployment": template_rules(
        validate_deployment, validate_deployment_update, validate_deployment_status_update
    ),
    "apps/DaemonSet": template_rules(
        validate_daemon_set, validate_daemon_set_update, validate_daemon_set_status_update
    ),
    "apps/StatefulSet": template_rules(
        validate_stateful_set, validate_stateful_set_update, validate_stateful_set_status_update
    ),
    "apps/ControllerRevision": ValidationRules(
        validate_controller_revision, validate_controller_revision_update
    ),
    # The first betas.
    "apps/Deployment@apps/v1beta1": _DEPLOYMENT_V1BETA1,
    "apps/Deployment@extensions/v1beta1": _DEPLOYMENT_V1BETA1,
    "apps/ReplicaSet@extensions/v1beta1": template_rules(
        validate_replica_set, validate_replica_set_update_extensions, validate_replica_status_update
    ),
    "apps/DaemonSet@extensions/v1beta1": template_rules(
        validate_daemon_set,
        validate_daemon_set_update_extensions,
        validate_daemon_set_status_update,
    ),
}
