"""Defaults of pods and of pod templates: spec, containers, probes, volumes.

In its own module because every workload has a pod template, and creating pods is the most frequent
write. Only a Pod itself gets requests from its limits and `enableServiceLinks`; a template does
not.

Also applies what the conversion through the internal version changes in a v1 pod (the
`serviceAccount` alias, obsolete annotations, `podIP` and `podIPs`), because objects are kept in v1.
"""

from __future__ import annotations

from typing import Any

from transom.kit.caching import text_cache
from transom.machinery import quantity
from transom.machinery.defaults.images import default_pull_policy
from transom.machinery.serviceaccounts import TOKEN_SOURCES

Object = dict[str, Any]

_FILE_MODE = 0o644
_TOKEN_SECONDS = 3600
_DEAD_ANNOTATIONS = (
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
)


def set_defaults_pod(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    for group in ("containers", "initContainers"):
        for container in spec.get(group) or ():
            _requests_from_limits(container)
    spec.setdefault("enableServiceLinks", True)
    set_defaults_pod_spec(spec)
    _drop_dead_annotations(obj)
    status = obj.get("status")
    if status:
        _pod_ips(status)


def set_defaults_template(obj: Object) -> None:
    """A PodTemplateSpec."""
    set_defaults_pod_spec(obj.setdefault("spec", {}))
    _drop_dead_annotations(obj)


def set_defaults_pod_spec(spec: Object) -> None:
    setdefault = spec.setdefault
    setdefault("dnsPolicy", "ClusterFirst")
    setdefault("restartPolicy", "Always")
    setdefault("terminationGracePeriodSeconds", 30)
    setdefault("schedulerName", "default-scheduler")
    if "securityContext" not in spec:
        spec["securityContext"] = {}
    if "hostNetwork" in spec:
        _host_ports(spec)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in spec.get("containers") or ():
        _container(container)
    for group in ("initContainers", "ephemeralContainers"):
        if group in spec:
            for container in spec[group] or ():
                _container(container)
    if "volumes" in spec:
        for volume in spec["volumes"] or ():
            _volume(volume)
    if "overhead" in spec:
        set_defaults_resource_list(spec["overhead"])


def set_defaults_ephemeral_containers(obj: Object) -> None:
    """The EphemeralContainers kind, which the sub-resource of that name carries."""
    for container in obj.get("ephemeralContainers") or ():
        _container(container)


def set_defaults_resource_list(resources: Object | None) -> None:
    """Rounds amounts up to thousandths."""
    if not resources:
        return
    for name, text in resources.items():
        rounded = _in_milli(text)
        if rounded != text:
            resources[name] = rounded


def set_defaults_requirements(resources: Object | None) -> None:
    """`limits` and `requests`."""
    if resources:
        if "limits" in resources:
            set_defaults_resource_list(resources["limits"])
        if "requests" in resources:
            set_defaults_resource_list(resources["requests"])


@text_cache(8192)
def _in_milli(text: str) -> str:
    return str(quantity.parse_quantity(text).round_up(quantity.MILLI))


def _requests_from_limits(container: Object) -> None:
    resources = container.get("resources")
    if not resources or not resources.get("limits"):
        return
    if resources.get("requests"):
        resources["requests"] = {**resources["limits"], **resources["requests"]}
    else:
        resources["requests"] = dict(resources["limits"])


def _host_ports(spec: Object) -> None:
    if not spec["hostNetwork"]:
        return
    for group in ("containers", "initContainers"):
        for container in spec.get(group) or ():
            for port in container.get("ports") or ():
                if not port.get("hostPort") and port.get("containerPort"):
                    port["hostPort"] = port["containerPort"]


def _container(container: Object) -> None:
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = default_pull_policy(container.get("image", ""))
    setdefault = container.setdefault
    setdefault("terminationMessagePath", "/dev/termination-log")
    setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if source and source.get("fieldRef") is not None:
            source["fieldRef"].setdefault("apiVersion", "v1")
    set_defaults_requirements(container.get("resources"))
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _probe(container[name])
    if "lifecycle" in container:
        for handler in (container["lifecycle"] or {}).values():
            _http_get(handler)


def _probe(probe: Object) -> None:
    if probe is None:
        return
    setdefault = probe.setdefault
    setdefault("timeoutSeconds", 1)
    setdefault("periodSeconds", 10)
    setdefault("successThreshold", 1)
    setdefault("failureThreshold", 3)
    _http_get(probe)


def _http_get(handler: Object) -> None:
    """`path` and `scheme` of an HTTP handler."""
    action = handler.get("httpGet") if isinstance(handler, dict) else None
    if action is not None:
        action.setdefault("path", "/")
        action.setdefault("scheme", "HTTP")


def _default_mode(source: Object) -> None:
    source.setdefault("defaultMode", _FILE_MODE)


def _field_refs(source: Object) -> None:
    for item in source.get("items") or ():
        if item.get("fieldRef") is not None:
            item["fieldRef"].setdefault("apiVersion", "v1")


def _downward(source: Object) -> None:
    _default_mode(source)
    _field_refs(source)


def _projected(source: Object) -> None:
    _default_mode(source)
    sources = source.get("sources") or ()
    if sources == TOKEN_SOURCES:  # most pods have them, and they are complete
        return
    for part in sources:
        if part.get("downwardAPI") is not None:
            _field_refs(part["downwardAPI"])
        if part.get("serviceAccountToken") is not None:
            part["serviceAccountToken"].setdefault("expirationSeconds", _TOKEN_SECONDS)


def _ephemeral(source: Object) -> None:
    claim = source.get("volumeClaimTemplate")
    if claim is not None:
        set_defaults_claim_spec(claim.setdefault("spec", {}))


def set_defaults_claim_spec(spec: Object) -> None:
    """A PersistentVolumeClaimSpec."""
    spec.setdefault("volumeMode", "Filesystem")
    set_defaults_requirements(spec.get("resources"))


def _host_path(source: Object) -> None:
    source.setdefault("type", "")


def _iscsi(source: Object) -> None:
    source.setdefault("iscsiInterface", "default")


def _rbd(source: Object) -> None:
    source.setdefault("pool", "rbd")
    source.setdefault("user", "admin")
    source.setdefault("keyring", "/etc/ceph/keyring")


def _azure_disk(source: Object) -> None:
    source.setdefault("cachingMode", "ReadWrite")
    source.setdefault("kind", "Shared")
    source.setdefault("fsType", "ext4")
    source.setdefault("readOnly", False)


def _scale_io(source: Object) -> None:
    source.setdefault("storageMode", "ThinProvisioned")
    source.setdefault("fsType", "xfs")


_PERSISTENT_SOURCES = {
    "hostPath": _host_path,
    "iscsi": _iscsi,
    "rbd": _rbd,
    "azureDisk": _azure_disk,
    "scaleIO": _scale_io,
}
_SOURCES = {
    **_PERSISTENT_SOURCES,
    "secret": _default_mode,
    "configMap": _default_mode,
    "downwardAPI": _downward,
    "projected": _projected,
    "ephemeral": _ephemeral,
}


def _volume(volume: Object) -> None:
    empty = True
    for source, value in volume.items():
        if source == "name" or value is None:
            continue
        empty = False
        rule = _SOURCES.get(source)
        if rule:
            rule(value)
    if empty:
        volume["emptyDir"] = {}


def set_defaults_persistent_source(spec: Object) -> None:
    """The volume source and the capacity of a PersistentVolumeSpec."""
    set_defaults_resource_list(spec.get("capacity"))
    for source, rule in _PERSISTENT_SOURCES.items():
        if spec.get(source) is not None:
            rule(spec[source])


def _drop_dead_annotations(obj: Object) -> None:
    metadata = obj.get("metadata") or {}
    annotations = metadata.get("annotations")
    if not annotations:
        return
    for key in _DEAD_ANNOTATIONS:
        if key in annotations:
            del annotations[key]
    if not annotations:
        del metadata["annotations"]


def _pod_ips(status: Object) -> None:
    """`podIP` is the first of `podIPs`; if they disagree, `podIP` wins."""
    address, addresses = status.get("podIP"), status.get("podIPs")
    if address:
        if not addresses or addresses[0].get("ip") != address:
            status["podIPs"] = [{"ip": address}]
    elif addresses and addresses[0].get("ip"):
        status["podIP"] = addresses[0]["ip"]
