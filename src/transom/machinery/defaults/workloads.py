"""Defaults of the workload kinds: apps and batch."""

from __future__ import annotations

from typing import Any

from transom.machinery.defaults import core, pods

Object = dict[str, Any]


def deployment(obj: Object) -> None:
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


def daemon_set(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        _object(strategy, "rollingUpdate").setdefault("maxUnavailable", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    _template(spec)


def stateful_set(obj: Object) -> None:
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
        core.persistent_volume_claim(claim)


def replica_set(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    _template(spec)


def job(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get("parallelism") is None:
        if spec.get("completions") is None:
            spec["completions"] = 1
        spec["parallelism"] = 1
    spec.setdefault("backoffLimit", 6)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    metadata = obj.setdefault("metadata", {})
    if labels and not metadata.get("labels"):
        metadata["labels"] = labels  # the very same map: labels that the server generates show up in both
    _template(spec)


def cron_job(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    # The job inside gets its own defaults only when it is made.
    _template(spec.setdefault("jobTemplate", {}).setdefault("spec", {}))


def _template(spec: Object) -> None:
    pods.template(spec.setdefault("template", {}))


def _object(parent: Object, name: str) -> Object:
    if parent.get(name) is None:
        parent[name] = {}
    child: Object = parent[name]
    return child
