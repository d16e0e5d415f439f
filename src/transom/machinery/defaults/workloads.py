"""Defaults of the workload kinds: apps and batch."""

from __future__ import annotations

from typing import Any

from transom.machinery.defaults import core, pods

Object = dict[str, Any]
_UNLIMITED = 2**31 - 1
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def set_defaults_deployment(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = _object(strategy, "rollingUpdate")
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    _template(spec)


def set_defaults_deployment_v1beta1(obj: Object) -> None:
    _selected_by_template(obj)
    obj["spec"].setdefault("revisionHistoryLimit", 2)
    set_defaults_deployment(obj)


def set_defaults_deployment_extensions(obj: Object) -> None:
    """No deadline and no limit, expressed as the largest number."""
    _selected_by_template(obj)
    spec = obj["spec"]
    strategy = spec.setdefault("strategy", {})
    if (
        strategy.setdefault("type", "RollingUpdate") == "RollingUpdate"
        or strategy.get("rollingUpdate") is not None
    ):
        rolling = _object(strategy, "rollingUpdate")
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 1)
    spec.setdefault("progressDeadlineSeconds", _UNLIMITED)
    spec.setdefault("revisionHistoryLimit", _UNLIMITED)
    set_defaults_deployment(obj)


def set_defaults_daemon_set(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        _object(strategy, "rollingUpdate").setdefault("maxUnavailable", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    _template(spec)


def set_defaults_daemon_set_v1(obj: Object) -> None:
    """apps/v1 and v1beta2 have the template generation as an annotation. The strategy sets its
    value; the manager that writes an object without it owns it.
    """
    set_defaults_daemon_set(obj)
    metadata = obj.setdefault("metadata", {})
    annotations = metadata.get("annotations") or {}
    if TEMPLATE_GENERATION not in annotations:
        metadata["annotations"] = {**annotations, TEMPLATE_GENERATION: "0"}


def set_defaults_daemon_set_extensions(obj: Object) -> None:
    _selected_by_template(obj)
    obj["spec"].setdefault("updateStrategy", {}).setdefault("type", "OnDelete")
    set_defaults_daemon_set(obj)


def set_defaults_stateful_set_v1beta1(obj: Object) -> None:
    _selected_by_template(obj)
    obj["spec"].setdefault("updateStrategy", {}).setdefault("type", "OnDelete")
    set_defaults_stateful_set(obj)


def set_defaults_stateful_set(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if "type" not in strategy:
        strategy["type"] = "RollingUpdate"
        _object(strategy, "rollingUpdate")
    # An explicit type without parameters stays without them.
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        strategy["rollingUpdate"].setdefault("partition", 0)
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    _template(spec)
    for claim in spec.get("volumeClaimTemplates") or ():
        claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
        core.set_defaults_persistent_volume_claim(claim)


def set_defaults_replica_set(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    _template(spec)


def set_defaults_replica_set_extensions(obj: Object) -> None:
    _selected_by_template(obj)
    set_defaults_replica_set(obj)


def set_defaults_job(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get("parallelism") is None:
        if spec.get("completions") is None:
            spec["completions"] = 1
        spec["parallelism"] = 1
    spec.setdefault("backoffLimit", 6)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    metadata = obj.setdefault("metadata", {})
    if labels and not metadata.get("labels"):
        metadata["labels"] = labels  # the same map: labels that the server generates appear in both
    _template(spec)


def set_defaults_cron_job(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    # The job template gets its own defaults only when the job is created.
    _template(spec.setdefault("jobTemplate", {}).setdefault("spec", {}))


def _selected_by_template(obj: Object) -> None:
    """The first betas take the selector and the labels of the object from its template."""
    spec = obj.setdefault("spec", {})
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels is None:
        return
    if spec.get("selector") is None:
        spec["selector"] = {"matchLabels": dict(labels)}
    metadata = obj.setdefault("metadata", {})
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _template(spec: Object) -> None:
    pods.set_defaults_template(spec.setdefault("template", {}))


def _object(parent: Object, name: str) -> Object:
    if parent.get(name) is None:
        parent[name] = {}
    child: Object = parent[name]
    return child
