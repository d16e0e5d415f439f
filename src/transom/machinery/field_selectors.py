"""Field selectors: their text form, the field labels of each kind, and matching."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.machinery.kinds import GVK, Kind
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.releases.behaviour import Behaviour, has_behaviour
from transom.machinery.selectors import LONGEST_CACHED_SELECTOR, SelectorError

Object = Mapping[str, Any]


class FieldTerm(NamedTuple):
    field: str
    equal: bool
    value: str


class FieldSelector:
    """All terms must hold. Immutable."""

    __slots__ = ("_equal", "_never", "_unequal", "terms")

    def __init__(self, terms: Iterable[FieldTerm] = ()) -> None:
        self.terms = tuple(terms)
        # By field, so that matching an object costs the same for any number of terms.
        self._equal: dict[str, str] = {}
        self._unequal: dict[str, set[str]] = {}
        self._never = False
        for field, equal, value in self.terms:
            if not equal:
                self._unequal.setdefault(field, set()).add(value)
            elif self._equal.setdefault(field, value) != value:
                self._never = True

    @property
    def empty(self) -> bool:
        return not self.terms

    def matches(self, values: Mapping[str, str]) -> bool:
        """Matches against the selectable fields of an object; a missing field counts as empty."""
        for field, value in self._equal.items():
            if values.get(field, "") != value:
                return False
        for field, excluded in self._unequal.items():
            if values.get(field, "") in excluded:
                return False
        return not self._never

    def matches_object(self, kind: Kind, obj: Object) -> bool:
        """Like `matches`, reading only the fields of the selector."""
        return self.matches(
            {field: field_value(kind, obj, field) for field in (*self._equal, *self._unequal)}
        )

    def exact(self, field: str) -> str | None:
        """The only value of `field` that can match, if there is one."""
        return self._equal.get(field)

    def of_metadata(self) -> FieldSelector:
        """The terms about fields that are the same in all versions of a custom resource."""
        return FieldSelector(term for term in self.terms if term.field.startswith("metadata."))

    def of_content(self) -> FieldSelector:
        """The other terms."""
        return FieldSelector(term for term in self.terms if not term.field.startswith("metadata."))

    def __str__(self) -> str:
        return ",".join(f"{f}{'=' if equal else '!='}{_escape(v)}" for f, equal, v in self.terms)

    def __repr__(self) -> str:
        return f"FieldSelector({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldSelector) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)


def parse_fields(text: str) -> FieldSelector:
    """The selector in its text form (`fieldSelector=` of a list), any field label; raises
    SelectorError.
    """
    return (
        _parse_fields(text)
        if len(text) <= LONGEST_CACHED_SELECTOR
        else _parse_fields.__wrapped__(text)
    )


@lru_cache(maxsize=1024)
def _parse_fields(text: str) -> FieldSelector:
    terms = []
    for part in sorted(_split_terms(text)):
        if not part:
            continue
        found = _FIELD_OPERATOR.search(part)
        if found is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        name, value = part[: found.start()], _unescape(part[found.end() :])
        if name or value:  # a lone operator selects everything
            terms.append(FieldTerm(name, found.group() != "!=", value))
    return FieldSelector(terms)


def convert_fields(
    selector: FieldSelector, kind: Kind, gvk: GVK, release: Release = DEFAULT
) -> FieldSelector:
    """Field labels of the request's version to those of `field_values`; raises SelectorError for an
    unknown one.
    """
    if not selector.terms:
        return selector
    return FieldSelector(
        FieldTerm(_convert_label(kind, gvk, t.field, release), t.equal, t.value)
        for t in selector.terms
    )


def selectable_labels(kind: Kind) -> Iterator[str]:
    """The selectable fields of all versions of a custom resource."""
    return (label for _, fields in kind.selectable for label in fields)


def field_values(kind: Kind, obj: Object) -> dict[str, str]:
    """Every selectable field of an object in its storage version."""
    values = (
        {label: get(obj) for label, get in _GETTERS.get(kind.key, {}).items()}
        if not kind.custom
        else {label: _custom_value(obj, label) for label in selectable_labels(kind)}
    )
    metadata = obj.get("metadata") or {}
    values["metadata.name"] = metadata.get("name", "")
    if kind.namespaced:
        values["metadata.namespace"] = metadata.get("namespace", "")
    return values


def field_value(kind: Kind, obj: Object, label: str) -> str:
    """One selectable field, empty when the kind has no such field."""
    if label == "metadata.name":
        return str((obj.get("metadata") or {}).get("name", ""))
    if label == "metadata.namespace":
        return str((obj.get("metadata") or {}).get("namespace", "")) if kind.namespaced else ""
    if kind.custom:
        return _custom_value(obj, label)
    getter = _GETTERS.get(kind.key, {}).get(label)
    return getter(obj) if getter else ""


def _custom_value(obj: Any, label: str) -> str:
    """A selectable field of a custom object; a missing one is empty."""
    for name in label.split("."):
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    if obj is None:
        return ""
    return str(obj).lower() if isinstance(obj, bool) else str(obj)


_FIELD_OPERATOR = re.compile("!=|==|=")
_TERM = re.compile(r"(?:[^\\,]|\\.|\\\Z)+", re.DOTALL)
_ESCAPE = str.maketrans({"\\": "\\\\", ",": "\\,", "=": "\\="})


def _escape(value: str) -> str:
    return value.translate(_ESCAPE)


def _split_terms(text: str) -> list[str]:
    """Splits at commas, except those after a backslash."""
    if "\\" not in text:
        return text.split(",")
    return _TERM.findall(text)


def _unescape(text: str) -> str:
    if not any(ch in text for ch in "\\,="):
        return text
    out = []
    characters = iter(text)
    for ch in characters:
        if ch == "\\":
            escaped = next(characters, "")
            if escaped not in ("\\", ",", "="):
                raise SelectorError(f"invalid field selector: invalid escape sequence: \\{escaped}")
            out.append(escaped)
        elif ch in ",=":
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(ch)}")
        else:
            out.append(ch)
    return "".join(out)


def _path(*names: str, none: str = "") -> Callable[[Object], str]:
    """Reads a nested field as text; `none` replaces a missing one (Go's zero value)."""

    def get(obj: Any) -> str:
        for name in names:
            obj = obj.get(name)
            if obj is None:
                return none
        return obj if isinstance(obj, str) else str(obj)

    return get


def _unschedulable(obj: Object) -> str:
    return "true" if (obj.get("spec") or {}).get("unschedulable") else "false"


def _host_network(pod: Object) -> str:
    return "true" if (pod.get("spec") or {}).get("hostNetwork") else "false"


def _event_source(obj: Object) -> str:
    return (obj.get("source") or {}).get("component") or obj.get("reportingComponent") or ""


_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

# The fields of each kind beside its name and namespace, read from the storage version.
_GETTERS: dict[str, dict[str, Callable[[Object], str]]] = {
    "/Pod": {
        "spec.nodeName": _path("spec", "nodeName"),
        "spec.restartPolicy": _path("spec", "restartPolicy"),
        "spec.schedulerName": _path("spec", "schedulerName"),
        "spec.serviceAccountName": _path("spec", "serviceAccountName"),
        "status.phase": _path("status", "phase"),
        "status.podIP": _path("status", "podIP"),
        "spec.hostNetwork": _host_network,
        "status.nominatedNodeName": _path("status", "nominatedNodeName"),
    },
    "/Node": {"spec.unschedulable": _unschedulable},
    "/Service": {
        "spec.clusterIP": _path("spec", "clusterIP"),
        "spec.type": _path("spec", "type"),
    },
    "resource.k8s.io/ResourceSlice": {
        "spec.nodeName": _path("spec", "nodeName"),
        "spec.driver": _path("spec", "driver"),
    },
    "/Namespace": {"status.phase": _path("status", "phase")},
    "/Secret": {"type": _path("type")},
    "/ReplicationController": {"status.replicas": _path("status", "replicas", none="0")},
    "/Event": {
        **{f"involvedObject.{name}": _path("involvedObject", name) for name in _INVOLVED},
        "reason": _path("reason"),
        "reportingComponent": _path("reportingComponent"),
        "source": _event_source,
        "type": _path("type"),
    },
    "batch/Job": {"status.successful": _path("status", "succeeded", none="0")},
    "certificates.k8s.io/CertificateSigningRequest": {
        "spec.signerName": _path("spec", "signerName")
    },
    "certificates.k8s.io/ClusterTrustBundle": {"spec.signerName": _path("spec", "signerName")},
    "certificates.k8s.io/PodCertificateRequest": {
        name: _path(*name.split("."))
        for name in ("spec.signerName", "spec.podName", "spec.nodeName")
    },
}

_NAME, _NAMESPACE = "metadata.name", "metadata.namespace"
_EVENTS_GROUP = {
    **{f"regarding.{name}": f"involvedObject.{name}" for name in _INVOLVED},
    "reason": "reason",
    "reportingController": "reportingComponent",
    "type": "type",
}


def _same(*labels: str) -> dict[str, str]:
    return {label: label for label in labels}


# Kinds whose labels are not just name and namespace: request label -> our label, and the message
# for an unknown one.
_UNKNOWN = "field label not supported: {0}"
_LABELS: dict[tuple[str, str, str], tuple[dict[str, str], str]] = {
    **{
        ("resource.k8s.io", version, "ResourceSlice"): (
            _same(_NAME, *_GETTERS["resource.k8s.io/ResourceSlice"]),
            f"field label not supported for resource.k8s.io/{version}, Kind=ResourceSlice: {{0}}",
        )
        for version in ("v1", "v1beta1", "v1beta2")
    },
    **{
        ("certificates.k8s.io", version, kind): (
            _same(_NAME, *_GETTERS[f"certificates.k8s.io/{kind}"]),
            _UNKNOWN,
        )
        for version in ("v1", "v1alpha1", "v1beta1")
        for kind in ("ClusterTrustBundle", "PodCertificateRequest")
    },
    ("", "v1", "Pod"): (
        {
            **_same(
                _NAME,
                _NAMESPACE,
                "status.podIPs",
                *(label for label in _GETTERS["/Pod"] if label != "spec.hostNetwork"),
            ),
            "spec.host": "spec.nodeName",
        },
        _UNKNOWN,
    ),
    ("", "v1", "Node"): (_same(_NAME, *_GETTERS["/Node"]), _UNKNOWN),
    ("", "v1", "Namespace"): (_same(_NAME, *_GETTERS["/Namespace"]), _UNKNOWN),
    ("", "v1", "Secret"): (_same(_NAME, _NAMESPACE, "type"), _UNKNOWN),
    ("", "v1", "ReplicationController"): (_same(_NAME, _NAMESPACE, "status.replicas"), _UNKNOWN),
    ("", "v1", "Event"): (_same(_NAME, _NAMESPACE, *_GETTERS["/Event"]), _UNKNOWN),
    ("events.k8s.io", "v1", "Event"): ({**_same(_NAME, _NAMESPACE), **_EVENTS_GROUP}, _UNKNOWN),
    ("events.k8s.io", "v1beta1", "Event"): (
        {**_same(_NAME, _NAMESPACE), **_EVENTS_GROUP},
        _UNKNOWN,
    ),
    ("batch", "v1", "Job"): (
        _same(_NAME, _NAMESPACE, "status.successful"),
        "field label {1} not supported for batchv1.Job",
    ),
    ("batch", "v1beta1", "CronJob"): (
        _same(_NAME, _NAMESPACE, "status.successful"),
        'field label {1} not supported for "CronJob"',
    ),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest"): (
        _same(_NAME, "spec.signerName"),
        _UNKNOWN,
    ),
    ("certificates.k8s.io", "v1beta1", "CertificateSigningRequest"): (
        _same(_NAME, "spec.signerName"),
        _UNKNOWN,
    ),
}
_ORDINARY = (
    _same(_NAME, _NAMESPACE),
    '{1} is not a known field selector: only "metadata.name", "metadata.namespace"',
)
_CUSTOM = (_same(_NAME, _NAMESPACE), _UNKNOWN)
_CUSTOM_CLUSTER = (_same(_NAME), _UNKNOWN)


# Labels that came after 1.20: the behaviour of the releases that have them, request label -> our
# label, and the message for an unknown one.
_SLICES = "field label not supported for resource.k8s.io/{version}, Kind=ResourceSlice: {0}"
_LATER: dict[tuple[str, str], tuple[Behaviour, dict[str, str], str]] = {
    ("", "Pod"): (
        "PodHostNetworkSelector",
        _LABELS["", "v1", "Pod"][0] | _same("spec.hostNetwork"),
        _UNKNOWN,
    ),
    ("", "Service"): (
        "ServiceSelectors",
        _same(_NAME, _NAMESPACE, "spec.clusterIP", "spec.type"),
        _UNKNOWN,
    ),
    ("batch", "Job"): (
        "JobSelectorErrors",
        _same(_NAME, _NAMESPACE, "status.successful"),
        "field label {1} not supported for Job",
    ),
    ("resource.k8s.io", "ResourceSlice"): (
        "NodeResourceClaims",
        _same(_NAME, "spec.nodeName", "spec.driver"),
        _SLICES,
    ),
}


def _convert_label(kind: Kind, gvk: GVK, label: str, release: Release) -> str:
    later = None if kind.custom else _LATER.get((gvk.group, gvk.kind))
    if later is not None and has_behaviour(release, later[0]):
        labels, text = later[1], later[2].replace("{version}", gvk.version)
    elif kind.custom:
        labels, text = _CUSTOM if kind.namespaced else _CUSTOM_CLUSTER
        if any(version == gvk.version and label in fields for version, fields in kind.selectable):
            return label
    else:
        labels, text = _LABELS.get((gvk.group, gvk.version, gvk.kind), _ORDINARY)
    known = labels.get(label)
    if known is None:
        raise SelectorError(text.format(label, go_quote(label)))
    return known
