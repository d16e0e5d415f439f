"""Events: the lenient rules of the core API, and the strict ones of events.k8s.io/v1 on top of
them.
"""

from __future__ import annotations

from transom.machinery.field import invalid, required
from transom.machinery.validation.checks import check_each, dns_subdomain
from transom.machinery.validation.meta import validate_object_meta, validate_object_meta_update
from transom.machinery.validation.names import byte_len, is_qualified_name, name_is_dns_subdomain
from transom.machinery.validation.rules import Errors, Object, ValidationRules

_MISMATCH = "does not match event.namespace"
# Fields that clients of the new API fill in: JSON name in the stored object, limit, whether it may
# be missing.
_LIMITED = (
    ("reportingInstance", 128, False),
    ("action", 128, False),
    ("reason", 128, False),
    ("message", 1024, True),
)


def _namespace_fits(event: Object, namespace: str) -> bool:
    involved = (event.get("involvedObject") or {}).get("namespace", "")
    if event.get("eventTime"):
        return bool(involved) or namespace in ("default", "kube-system")
    return involved == namespace if involved else namespace in ("", "default")


def validate_event(event: Object) -> Errors:
    errors: Errors = []
    namespace = event["metadata"].get("namespace", "")
    if not _namespace_fits(event, namespace):
        involved = (event.get("involvedObject") or {}).get("namespace", "")
        errors.append(invalid("involvedObject.namespace", involved, _MISMATCH))
    if event.get("eventTime"):
        controller = event.get("reportingComponent", "")
        if not controller:
            errors.append(required("reportingController"))
        errors += check_each("reportingController", controller, is_qualified_name(controller))
        for name, limit, optional in _LIMITED:
            value = event.get(name, "")
            if not value and not optional:
                errors.append(required(name))
            if byte_len(value) > limit:
                errors.append(invalid(name, "", f"can have at most {limit} characters"))
    return errors + dns_subdomain(namespace, "namespace")


def validate_event_update(new: Object, old: Object) -> Errors:
    return validate_event(new)


def _series(event: Object) -> Errors:
    series = event.get("series")
    if series is None:
        return []
    errors = (
        [invalid("series.count", "", "should be at least 2")] if series.get("count", 0) < 2 else []
    )
    if not series.get("lastObservedTime"):
        errors.append(required("series.lastObservedTime"))
    return errors


def validate_new_event_create(event: Object) -> Errors:
    """An event written through events.k8s.io/v1."""
    errors = validate_event(event)
    errors += validate_object_meta(event["metadata"], True, name_is_dns_subdomain) + _series(event)
    if not event.get("eventTime"):
        errors.append(required("eventTime"))
    if event.get("type") not in ("Normal", "Warning"):
        errors.append(invalid("type", "", f"has invalid value: {event.get('type', '')}"))
    source = event.get("source") or {}
    errors += [
        invalid(name, "", "needs to be unset")
        for name, value in (
            ("firstTimestamp", event.get("firstTimestamp")),
            ("lastTimestamp", event.get("lastTimestamp")),
            ("count", event.get("count")),
            ("source", source.get("component") or source.get("host")),
        )
        if value
    ]
    return errors


def validate_new_event_update(new: Object, old: Object) -> Errors:
    """1.20 compares the new event with itself, so none of its fields is immutable; the metadata
    rules remain.
    """
    return validate_event(new) + validate_object_meta_update(new["metadata"], new["metadata"])


VALIDATORS = {
    "/Event": ValidationRules(validate_event, validate_event_update),
    "/Event@events.k8s.io/v1": ValidationRules(
        validate_new_event_create, validate_new_event_update
    ),
}
