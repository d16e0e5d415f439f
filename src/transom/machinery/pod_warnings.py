"""Warnings about the specs of pods and of pod templates. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from transom.kit.goquote import go_quote
from transom.machinery.podutil import (
    APPARMOR_ANNOTATION,
    apparmor_profile,
    containers_with_path,
    may_have_profiles,
)
from transom.machinery.quantity import parse_quantity
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import is_enabled
from transom.machinery.releases.warning_texts import warning_text
from transom.machinery.serviceaccounts import TOKEN_SOURCES
from transom.machinery.validation.addresses import ip_warnings
from transom.machinery.validation.names import is_label_value

Object = Mapping[str, Any]
Warnings = Iterator[str]

_SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
_REMOVED_ANNOTATIONS: Final = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": (
        'non-functional in v1.11+; use the "sysctls" field instead'
    ),
    "security.alpha.kubernetes.io/unsafe-sysctls": (
        'non-functional in v1.11+; use the "sysctls" field instead'
    ),
}
_DEPRECATED_VOLUMES: Final = (
    "photonPersistentDisk",
    "gitRepo",
    "scaleIO",
    "flocker",
    "storageos",
    "quobyte",
    "glusterfs",
    "cephfs",
    "rbd",
)
# Amounts of bytes, in the order of their warnings.
_BYTES: Final = tuple(
    (name, kind) for name in ("memory", "ephemeral-storage") for kind in ("limits", "requests")
)
_DEPRECATED_SOURCES: Final = frozenset(_DEPRECATED_VOLUMES)
# Paths in warnings that are not those of the JSON.
VOLUME_PATHS: Final = {"storageos": "storageOS"}
# A path or port is compared with that many others, so that the work grows with the pod, not with
# its square. Headers of a response hold fewer warnings.
_COMPARED: Final = 64
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def pod_warnings(release: Release, pod: Object) -> Iterable[str]:
    """Warnings about a pod without those about its name."""
    spec, meta = pod.get("spec") or {}, pod.get("metadata") or {}
    return () if _is_common(spec, meta) else _spec_warnings(release, spec, meta, "")


def template_warnings(release: Release, template: Object, path: str) -> Iterable[str]:
    """Warnings about the pod template at a path."""
    spec, meta = template.get("spec") or {}, template.get("metadata") or {}
    return () if _is_common(spec, meta) else _spec_warnings(release, spec, meta, f"{path}.")


def fraction_warnings(path: str, resources: Object, names: Sequence[str]) -> Warnings:
    for name in names:
        if name in resources:
            text = str(resources[name])
            value = parse_quantity(text)
            if value.exponent < 0 and value.mantissa % 10**-value.exponent:
                yield (
                    f"{path}[{name}]: fractional byte value {go_quote(text)} is invalid, must be "
                    "an integer"
                )


def claim_spec_warnings(release: Release, spec: Object, path: str) -> Warnings:
    """The spec of a PersistentVolumeClaim, or of a template of one."""
    if has_behaviour(release, "ClaimWarnings"):
        resources = spec.get("resources") or {}
        for kind in ("requests", "limits"):
            yield from fraction_warnings(
                f"{path}.resources.{kind}", resources.get(kind) or {}, ("storage",)
            )


def selector_term_warnings(
    release: Release, term: Object, path: str, *, values: bool = False
) -> Warnings:
    """A term of a node selector: deprecated labels, and invalid values where they are accepted."""
    for i, rule in enumerate(term.get("matchExpressions") or ()):
        key = rule.get("key", "")
        if text := warning_text(release, f"label {key}"):
            yield f"{path}.matchExpressions[{i}].key: {key} is {text}"
        if values and has_behaviour(release, "LabelValueWarnings"):
            for j, value in enumerate(rule.get("values") or ()):
                for problem in is_label_value(value):
                    where = f"{path}.matchExpressions[{i}].values[{j}]"
                    yield f"{where}: {value} is invalid, {problem}"


# Fields that few pods have.
_RARE: Final = frozenset(
    (
        "affinity",
        "dnsConfig",
        "ephemeralContainers",
        "hostAliases",
        "imagePullSecrets",
        "initContainers",
        "nodeSelector",
        "overhead",
        "topologySpreadConstraints",
    )
)
# Volumes without warnings.
_COMMON_VOLUMES: Final = frozenset(("name", "emptyDir", "hostPath", "persistentVolumeClaim"))
# Four amounts that are certainly integers: digits, perhaps with a unit above one.
_are_whole = re.compile(" ".join(["[0-9]+[kKMGTPEi]*"] * len(_BYTES))).fullmatch


def _is_common(spec: Object, meta: Object) -> bool:
    """Whether a quick look shows that there are no warnings, as for most pods: only what may have
    one is examined further.
    """
    # Alpha and beta annotations.
    if "a.kubernetes.io/" in "\n".join(meta.get("annotations") or ()) or not _RARE.isdisjoint(spec):
        return False
    for volume in spec.get("volumes") or ():
        if not _COMMON_VOLUMES.issuperset(volume) and not _has_token_sources(volume):
            return False
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        return False
    port = False
    for container in spec.get("containers") or ():
        if ports := container.get("ports"):
            if port or len(ports) > 1 or "hostIP" in ports[0]:
                return False
            port = True
        if resources := container.get("resources"):
            limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
            if not _are_whole(
                f"{limits.get('memory', 0)} {limits.get('ephemeral-storage', 0)} "
                f"{requests.get('memory', 0)} {requests.get('ephemeral-storage', 0)}"
            ):
                return False
        if (variables := container.get("env")) and len(variables) > 1:
            return False
    return True


def _has_token_sources(volume: Object) -> bool:
    """Whether a volume is the one that most pods get for their service account."""
    projected = volume.get("projected")
    return projected is not None and projected.get("sources") == TOKEN_SOURCES


def _spec_warnings(release: Release, spec: Object, meta: Object, prefix: str) -> Warnings:
    path = f"{prefix}spec"
    annotations = meta.get("annotations") or {}
    yield from _node_labels(release, spec, path)
    yield from _spread(release, spec, path)
    for key, text in _REMOVED_ANNOTATIONS.items():
        if key in annotations:
            yield f"{prefix}metadata.annotations[{key}]: {text}"
    volumes = spec.get("volumes") or ()
    yield from _volumes(release, volumes, f"{path}.volumes")
    if has_behaviour(release, "OverlappingPathWarnings"):
        for volume in volumes:
            yield from _overlapping_paths(release, volume)
    yield from _list_warnings(spec, path)
    containers = list(containers_with_path(spec, path))
    yield from _container_warnings(release, spec, containers, annotations, prefix)
    if has_behaviour(release, "PortWarnings"):
        yield from _ports(containers)
    if has_behaviour(release, "PortNameWarnings"):
        yield from _port_names(containers)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0 and (
        text := warning_text(release, "negative grace period")
    ):
        yield f"{path}.terminationGracePeriodSeconds: {text}"
    yield from _affinity_selectors(release, spec, f"{path}.affinity")
    yield from _addresses(release, spec, path)


def _list_warnings(spec: Object, path: str) -> Warnings:
    yield from _duplicates(spec.get("hostAliases") or (), "ip", f"{path}.hostAliases")
    yield from _duplicates(spec.get("imagePullSecrets") or (), "name", f"{path}.imagePullSecrets")
    for i, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f'{path}.imagePullSecrets[{i}].name: invalid empty name ""'
    overhead = spec.get("overhead") or {}
    yield from fraction_warnings(f"{path}.overhead", overhead, ("memory", "ephemeral-storage"))


def _addresses(release: Release, spec: Object, path: str) -> Warnings:
    if not has_behaviour(release, "AddressWarnings"):
        return
    servers = (spec.get("dnsConfig") or {}).get("nameservers") or ()
    for i, server in enumerate(servers):
        yield from ip_warnings(server, f"{path}.dnsConfig.nameservers[{i}]")
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        yield from ip_warnings(alias.get("ip", ""), f"{path}.hostAliases[{i}].ip")


def _duplicates(entries: Sequence[Object], field: str, path: str) -> Warnings:
    seen: set[str] = set()
    for i, entry in enumerate(entries):
        value = entry.get(field, "")
        if value in seen:
            yield f"{path}[{i}].{field}: duplicate {field} {go_quote(value)}"
        seen.add(value)


# ---- scheduling ----


def _node_labels(release: Release, spec: Object, path: str) -> Warnings:
    for key in sorted(spec.get("nodeSelector") or ()):
        if text := warning_text(release, f"label {key}"):
            yield f"{path}.nodeSelector[{key}]: {text}"
    node = (spec.get("affinity") or {}).get("nodeAffinity")
    if not node:
        return
    where = f"{path}.affinity.nodeAffinity"
    for i, term in enumerate((node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()):
        yield from selector_term_warnings(
            release, term, f"{where}.{_REQUIRED}.nodeSelectorTerms[{i}]"
        )
    for i, weighted in enumerate(node.get(_PREFERRED) or ()):
        at = f"{where}.{_PREFERRED}[{i}].preference"
        term = weighted.get("preference") or {}
        yield from selector_term_warnings(release, term, at, values=True)


def _spread(release: Release, spec: Object, path: str) -> Warnings:
    null_selector = warning_text(release, "null selector")
    for i, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        where, key = f"{path}.topologySpreadConstraints[{i}]", constraint.get("topologyKey", "")
        if text := warning_text(release, f"label {key}"):
            yield f"{where}.topologyKey: {key} is {text}"
        if constraint.get("labelSelector") is None and null_selector:
            yield f"{where}.labelSelector: {null_selector}"


def _affinity_selectors(release: Release, spec: Object, path: str) -> Warnings:
    text = warning_text(release, "null selector")
    affinity = spec.get("affinity")
    if not affinity or not text:
        return
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        for i, term in enumerate(terms.get(_REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield f"{path}.{kind}.{_REQUIRED}[{i}].labelSelector: {text}"
        for i, weighted in enumerate(terms.get(_PREFERRED) or ()):
            if (weighted.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{path}.{kind}.{_PREFERRED}[{i}].podAffinityTerm.labelSelector: {text}"


# ---- volumes ----


def _volumes(release: Release, volumes: Sequence[Object], path: str) -> Warnings:
    for i, volume in enumerate(volumes):
        for kind in _DEPRECATED_VOLUMES if not _DEPRECATED_SOURCES.isdisjoint(volume) else ():
            text = warning_text(release, f"volume {kind}")
            if volume.get(kind) is None or not text:
                continue
            disabled = has_behaviour(release, "GitRepoDisabled") and not is_enabled(
                release, "GitRepoVolumeDriver"
            )
            if kind == "gitRepo" and disabled:
                text += ", and disabled by default in v1.33+"
            yield f"{path}[{i}].{VOLUME_PATHS.get(kind, kind)}: {text}"
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template is not None:
            where = f"{path}[{i}].ephemeral.volumeClaimTemplate.spec"
            yield from claim_spec_warnings(release, template.get("spec") or {}, where)


class _VolumePath(NamedTuple):
    path: str
    source: str = ""

    def __str__(self) -> str:
        return f"{go_quote(self.path)} ({self.source})" if self.source else go_quote(self.path)

    def overlaps(self, other: _VolumePath) -> bool:
        if not self.path or not other.path:
            return False
        mine, theirs = f"{self.path}/", f"{other.path}/"
        return mine.startswith(theirs) or theirs.startswith(mine)


def _overlapping_paths(release: Release, volume: Object) -> Warnings:
    if _has_token_sources(volume):
        return
    name = go_quote(volume.get("name", ""))
    for field, shown, named_by in (
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "secretName"),
        ("downwardAPI", "DownwardAPI", ""),
    ):
        source = volume.get(field)
        if source is not None:
            about = f"{shown} {go_quote(source.get(named_by, ''))}" if named_by else shown
            paths = [_VolumePath(item.get("path", "")) for item in source.get("items") or ()]
            for overlap in _overlaps(paths):
                yield f"volume {name} ({about}): overlapping paths: {overlap}"
    if (projected := volume.get("projected")) is not None:
        yield from _overlapping_sources(release, projected.get("sources") or (), name)


def _overlapping_sources(release: Release, sources: Sequence[Object], name: str) -> Warnings:
    if not _may_overlap(sources):
        return
    paths: list[_VolumePath] = []
    found: list[_VolumePath] = []
    forgets = has_behaviour(release, "SourcePathsOfEachSource")
    for source in sources:
        if not source:
            yield f"volume {name} (Projected) has no sources provided"
            continue
        listed = _source_paths(source, certificates=forgets)
        # Releases before that compare a source without paths with those of the one before it.
        found = listed if listed is not None else [] if forgets else found
        for path in found:
            path = path._replace(path=path.path.rstrip("/"))
            for other in paths:
                if path.overlaps(other):
                    yield f"volume {name} (Projected): overlapping paths: {path} with {other}"
            if len(paths) < _COMPARED:
                paths.append(path)


def _may_overlap(sources: Sequence[Object]) -> bool:
    """A quick look, as at the volume of a service account: all sources are known, and their paths
    are single names that differ.
    """
    paths = []
    for source in sources:
        items: Sequence[Object] = ()
        if (token := source.get("serviceAccountToken")) is not None:
            items = (token,)
        elif (known := source.get("configMap") or source.get("downwardAPI")) is not None:
            items = known.get("items") or ()
        if not items:
            return True
        paths += [item.get("path", "") for item in items]
    return len(set(paths)) < len(paths) or any("/" in path for path in paths)


def _source_paths(source: Object, *, certificates: bool) -> list[_VolumePath] | None:
    """None if the source does not list paths."""
    for field, shown in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if (items := (source.get(field) or {}).get("items")) is not None:
            about = f"{shown} {go_quote(source[field].get('name', ''))}"
            return [_VolumePath(item.get("path", ""), about) for item in items]
    if (items := (source.get("downwardAPI") or {}).get("items")) is not None:
        return [_VolumePath(item.get("path", ""), "DownwardAPI") for item in items]
    if (token := source.get("serviceAccountToken")) is not None:
        return [_VolumePath(token.get("path", ""), "ServiceAccountToken")]
    if (bundle := source.get("clusterTrustBundle")) is not None:
        named = bundle.get("name")
        named = bundle.get("signerName", "") if named is None else named
        return [_VolumePath(bundle.get("path", ""), f"ClusterTrustBundle {go_quote(named)}")]
    if certificates and (certificate := source.get("podCertificate")) is not None:
        return [
            _VolumePath(certificate[field], f"PodCertificate {shown}")
            for field, shown in (
                ("certificateChainPath", "chain"),
                ("keyPath", "key"),
                ("credentialBundlePath", "credential bundle"),
            )
            if certificate.get(field)
        ]
    return None


def _overlaps(paths: Sequence[_VolumePath]) -> Iterator[str]:
    seen: list[_VolumePath] = []
    for path in paths:
        path = path._replace(path=path.path.rstrip("/"))
        for other in seen:
            if path.overlaps(other):
                yield f"{path} with {other}"
        if len(seen) < _COMPARED:
            seen.append(path)


# ---- containers ----


def _container_warnings(
    release: Release,
    spec: Object,
    containers: Sequence[tuple[Object, str]],
    annotations: Object,
    prefix: str,
) -> Warnings:
    context = spec.get("securityContext") or {}
    with_profiles = may_have_profiles(annotations)
    if with_profiles and context.get("seccompProfile") is None and _SECCOMP_POD in annotations:
        seccomp = warning_text(release, "seccomp annotation")
        yield f"{prefix}metadata.annotations[{_SECCOMP_POD}]: {seccomp}"
    for container, path in containers:
        if with_profiles:
            yield from _annotation_warnings(release, container, context, annotations, prefix)
        if resources := container.get("resources"):
            for name, kind in _BYTES:
                found = resources.get(kind) or {}
                yield from fraction_warnings(f"{path}.resources.{kind}", found, (name,))
        yield from _variables(release, container.get("env") or (), f"{path}.env")


def _annotation_warnings(
    release: Release, container: Object, context: Object, annotations: Object, prefix: str
) -> Warnings:
    """Annotations of a container that fields have replaced."""
    seccomp, at = warning_text(release, "seccomp annotation"), f"{prefix}metadata.annotations"
    own = container.get("securityContext") or {}
    key = _SECCOMP_CONTAINER + container.get("name", "")
    if own.get("seccompProfile") is None and key in annotations:
        yield f"{at}[{key}]: {seccomp}"
    key = APPARMOR_ANNOTATION + container.get("name", "")
    if (
        prefix
        and key in annotations
        and own.get("appArmorProfile") is None
        and has_behaviour(release, "AppArmorFields")
        and not _is_profile_of_pod(release, context, annotations[key])
    ):
        yield f'{at}[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead'


def _is_profile_of_pod(release: Release, context: Object, annotation: str) -> bool:
    """Whether the pod has the AppArmor profile of an annotation; any profile in older releases."""
    profile = context.get("appArmorProfile")
    if profile is None or not has_behaviour(release, "ComparedAppArmorProfiles"):
        return profile is not None
    return bool(profile == apparmor_profile(annotation))


def _hides(entry: Object) -> bool:
    """Whether an environment variable replaces an earlier one, rather than extending its value."""
    reference = f"$({entry.get('name', '')})"
    value = entry.get("value", "")
    return entry.get("valueFrom") is not None or value == reference or reference not in value


def _variables(release: Release, entries: Sequence[Object], path: str) -> Warnings:
    text = warning_text(release, "hidden variable")
    if not text:
        yield from _duplicates(entries, "name", path)
        return
    seen: set[str] = set()
    for i, entry in enumerate(entries):
        name = entry.get("name", "")
        if name in seen and _hides(entry):
            yield f"{path}[{i}]: {text.format(go_quote(name))}"
        seen.add(name)


class _Port(NamedTuple):
    path: str
    host_ip: str
    host_port: int

    def conflict(self, other: _Port) -> str:
        """How two ports of the same number and protocol conflict, "" if they do not."""
        if self.host_ip == other.host_ip and self.host_port == other.host_port:
            return "duplicate"
        if not self.host_port or not other.host_port:
            return "overlapping"
        same = self.host_port == other.host_port
        return "dangerously ambiguous" if same and bool(self.host_ip) != bool(other.host_ip) else ""


def _ports(containers: Sequence[tuple[Object, str]]) -> Warnings:
    seen: dict[tuple[int, str], list[_Port]] = {}
    for container, where in containers:
        for i, port in enumerate(container.get("ports") or ()):
            number, protocol = port.get("containerPort", 0), port.get("protocol", "")
            mine = _Port(f"{where}.ports[{i}]", port.get("hostIP", ""), port.get("hostPort", 0))
            if mine.host_ip and not mine.host_port:
                yield (
                    f"{mine.path}: hostIP set without hostPort: {{Name:{port.get('name', '')} "
                    f"HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{mine.host_ip}}}"
                )
            others = seen.setdefault((number, protocol), [])
            for other in others:
                if kind := mine.conflict(other):
                    yield f"{mine.path}: {kind} port definition with {other.path}"
            if len(others) < _COMPARED:
                others.append(mine)


def _port_names(containers: Sequence[tuple[Object, str]]) -> Warnings:
    seen: dict[str, str] = {}
    for container, where in containers:
        for i, port in enumerate(container.get("ports") or ()):
            name, at = port.get("name", ""), f"{where}.ports[{i}]"
            if not name:
                continue
            other = seen.setdefault(name, at)
            if other != at:
                yield (
                    f"{at}: duplicate port name {go_quote(name)} with {other}, services and probes "
                    f"that select ports by name will use {other}"
                )
