"""HorizontalPodAutoscaler v1 and v2beta1 from and to v2.

v1 has room for one CPU target only, so the rest of v2 travels in annotations; v2beta1 lacks only
the behaviour. Both use a flat form of metrics, and Go's field names for the behaviour; all of that
is part of the API.
"""

from __future__ import annotations

from typing import Any

import orjson

from transom.machinery import gojson, normalise, schema

Object = dict[str, Any]

METRICS = "autoscaling.alpha.kubernetes.io/metrics"
CURRENT_METRICS = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
_ANNOTATIONS = (METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR)
DEFAULT_CPU_UTILIZATION = 80


def drop_annotations(out: Object) -> None:
    """Removes the annotations that carry one version's fields: they must not appear in another
    version.
    """
    meta = out.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    if any(name in annotations for name in _ANNOTATIONS):
        _set_annotations(out, {k: v for k, v in annotations.items() if k not in _ANNOTATIONS})


def _set_annotations(out: Object, annotations: dict[str, str]) -> None:
    meta = dict(out.get("metadata") or {})
    meta["annotations"] = annotations
    if not annotations:
        del meta["annotations"]
    out["metadata"] = meta


# --- v2 -> v1 ----------


def autoscaler_to_v1(out: Object) -> None:
    drop_annotations(out)
    spec, status = dict(out.get("spec") or {}), dict(out.get("status") or {})
    metrics, behavior = spec.pop("metrics", None) or [], spec.pop("behavior", None)
    current, conditions = (
        status.pop("currentMetrics", None) or [],
        status.pop("conditions", None) or [],
    )
    first_cpu = next((m for m in metrics if _is_cpu(m)), None)
    if first_cpu is not None and "averageUtilization" in first_cpu["resource"]["target"]:
        spec["targetCPUUtilizationPercentage"] = first_cpu["resource"]["target"][
            "averageUtilization"
        ]
    for metric in current:
        if _is_cpu(metric) and "averageUtilization" in metric["resource"]["current"]:
            status["currentCPUUtilizationPercentage"] = metric["resource"]["current"][
                "averageUtilization"
            ]
    others = [
        m for m in metrics if not (_is_cpu(m) and "averageUtilization" in m["resource"]["target"])
    ]
    annotations = dict((out.get("metadata") or {}).get("annotations") or {})
    if others:
        annotations[METRICS] = _text("MetricSpec", [_metric(m, _SPEC_TO_V1) for m in others])
    if current:
        annotations[CURRENT_METRICS] = _text(
            "MetricStatus", [_metric(m, _STATUS_TO_V1) for m in current]
        )
    if behavior is not None:
        annotations[BEHAVIOR] = _behavior_text(behavior)
    if conditions:
        annotations[CONDITIONS] = _text("HorizontalPodAutoscalerCondition", conditions)
    _set_annotations(out, annotations)
    out["spec"], out["status"] = spec, status


def _is_cpu(metric: Object) -> bool:
    return metric.get("type") == "Resource" and (metric.get("resource") or {}).get("name") == "cpu"


def _text(type_name: str, items: list[Object]) -> str:
    shape = normalise.normaliser(schema.get_schema_type(f"autoscaling/v1.{type_name}"))
    return gojson.escape_html(orjson.dumps([shape(item) for item in items])).decode()


# --- v1 -> v2 ----------


def autoscaler_from_v1(out: Object) -> None:
    spec, status = dict(out.get("spec") or {}), dict(out.get("status") or {})
    annotations = (out.get("metadata") or {}).get("annotations") or {}
    target = spec.pop("targetCPUUtilizationPercentage", None)
    used = status.pop("currentCPUUtilizationPercentage", None)
    metrics = [
        _metric(m, _SPEC_FROM_V1) for m in _read("MetricSpec", annotations.get(METRICS)) or ()
    ]
    if target is not None or not metrics:
        wanted = DEFAULT_CPU_UTILIZATION if target is None else target
        metrics.append(_cpu("target", {"type": "Utilization", "averageUtilization": wanted}))
    spec["metrics"] = metrics
    behavior = _behavior_from_go(annotations.get(BEHAVIOR))
    if behavior:
        spec["behavior"] = behavior
    current = _read("MetricStatus", annotations.get(CURRENT_METRICS))
    if current is not None:
        status["currentMetrics"] = [_metric(m, _STATUS_FROM_V1) for m in current]
    elif used is not None:
        status["currentMetrics"] = [_cpu("current", {"averageUtilization": used})]
    conditions = _read("HorizontalPodAutoscalerCondition", annotations.get(CONDITIONS))
    if conditions is not None:
        status["conditions"] = conditions
    out["spec"], out["status"] = spec, status
    drop_annotations(out)


def _cpu(field: str, value: Object) -> Object:
    return {"type": "Resource", "resource": {"name": "cpu", field: value}}


def _read(type_name: str, text: str | None) -> list[Object] | None:
    """The contents of an annotation; None if it is missing or unreadable."""
    if text is None:
        return None
    shape = normalise.normaliser(schema.get_schema_type(f"autoscaling/v1.{type_name}"))
    try:
        return [shape(item) for item in orjson.loads(text)]
    except (TypeError, ValueError):
        return None


# --- v2beta1 ----------


def autoscaler_to_v2beta1(out: Object) -> None:
    drop_annotations(out)
    spec, status = dict(out.get("spec") or {}), dict(out.get("status") or {})
    behavior = spec.pop("behavior", None)
    if behavior is not None:
        annotations = (out.get("metadata") or {}).get("annotations") or {}
        _set_annotations(out, {**annotations, BEHAVIOR: _behavior_text(behavior)})
    _reshape(spec, status, _SPEC_TO_V1, _STATUS_TO_V1)
    out["spec"], out["status"] = spec, status


def autoscaler_from_v2beta1(out: Object) -> None:
    spec, status = dict(out.get("spec") or {}), dict(out.get("status") or {})
    behavior = _behavior_from_go(
        ((out.get("metadata") or {}).get("annotations") or {}).get(BEHAVIOR)
    )
    if behavior:
        spec["behavior"] = behavior
    _reshape(spec, status, _SPEC_FROM_V1, _STATUS_FROM_V1)
    out["spec"], out["status"] = spec, status
    drop_annotations(out)


def _reshape(
    spec: Object, status: Object, of_spec: dict[str, Any], of_status: dict[str, Any]
) -> None:
    """Converts metrics from one shape to the other, in place."""
    if spec.get("metrics"):
        spec["metrics"] = [_metric(m, of_spec) for m in spec["metrics"]]
    if status.get("currentMetrics"):
        status["currentMetrics"] = [_metric(m, of_status) for m in status["currentMetrics"]]


# --- metrics: source by source, v2's nested shape and the flat one ----------


def _metric(metric: Object, table: dict[str, Any]) -> Object:
    out = {"type": metric.get("type", "")}
    for source, change in table.items():
        if metric.get(source) is not None:
            out[source] = change(metric[source])
    return out


def _put(**values: Any) -> Object:
    return {k: v for k, v in values.items() if v is not None}


def _object_to(s: Object, value: str, field: str) -> Object:
    now = s.get(field) or {}
    return {
        "target": s.get("describedObject") or {},
        "metricName": s["metric"].get("name", ""),
        value: now.get("value", "0"),
        **_put(selector=s["metric"].get("selector"), averageValue=now.get("averageValue")),
    }


def _object_from(s: Object, value: str, field: str) -> Object:
    average = s.get("averageValue")
    now = _put(value=s.get(value, "0"), averageValue=average)
    if field == "target":
        now["type"] = "Value" if average is None else "AverageValue"
    return {
        "describedObject": s.get("target") or {},
        field: now,
        "metric": _put(name=s.get("metricName", ""), selector=s.get("selector")),
    }


def _pods_to(s: Object, value: str, field: str) -> Object:
    return {
        "metricName": s["metric"].get("name", ""),
        value: (s.get(field) or {}).get("averageValue", "0"),
        **_put(selector=s["metric"].get("selector")),
    }


def _pods_from(s: Object, value: str, field: str) -> Object:
    now = {"averageValue": s.get(value, "0")}
    if field == "target":
        now["type"] = "AverageValue"
    return {"metric": _put(name=s.get("metricName", ""), selector=s.get("selector")), field: now}


def _resource_to(s: Object, prefix: str, field: str) -> Object:
    now = s.get(field) or {}
    value = now.get("averageValue")
    if field == "current" and value is None:
        value = "0"
    return {
        "name": s.get("name", ""),
        **_put(container=s.get("container")),
        **_put(
            **{
                prefix + "AverageUtilization": now.get("averageUtilization"),
                prefix + "AverageValue": value,
            }
        ),
    }


def _resource_from(s: Object, prefix: str, field: str) -> Object:
    used, value = s.get(prefix + "AverageUtilization"), s.get(prefix + "AverageValue")
    now = _put(averageUtilization=used, averageValue=value)
    if field == "target":
        now["type"] = "AverageValue" if used is None else "Utilization"
    return {"name": s.get("name", ""), **_put(container=s.get("container")), field: now}


def _external_to(s: Object, prefix: str, field: str) -> Object:
    now = s.get(field) or {}
    value = now.get("value")
    if field == "current" and value is None:
        value = "0"
    return {
        "metricName": s["metric"].get("name", ""),
        **_put(metricSelector=s["metric"].get("selector")),
        **_put(**{prefix + "Value": value, prefix + "AverageValue": now.get("averageValue")}),
    }


def _external_from(s: Object, prefix: str, field: str) -> Object:
    value = s.get(prefix + "Value")
    now = _put(value=value, averageValue=s.get(prefix + "AverageValue"))
    if field == "target":
        now["type"] = "AverageValue" if value is None else "Value"
    return {
        "metric": _put(name=s.get("metricName", ""), selector=s.get("metricSelector")),
        field: now,
    }


def _table(to_v1: bool, prefix: str, field: str) -> dict[str, Any]:
    objects, pods, resource, external = (
        (_object_to, _pods_to, _resource_to, _external_to)
        if to_v1
        else (_object_from, _pods_from, _resource_from, _external_from)
    )
    return {
        "object": lambda s: objects(s, prefix + "Value", field),
        "pods": lambda s: pods(s, prefix + "AverageValue", field),
        "resource": lambda s: resource(s, prefix, field),
        "containerResource": lambda s: resource(s, prefix, field),
        "external": lambda s: external(s, prefix, field),
    }


_SPEC_TO_V1, _SPEC_FROM_V1 = _table(True, "target", "target"), _table(False, "target", "target")
_STATUS_TO_V1, _STATUS_FROM_V1 = (
    _table(True, "current", "current"),
    _table(False, "current", "current"),
)


# --- behaviour: Go's own field names, every field there ----------


def _behavior_text(behavior: Object) -> str:
    return gojson.escape_html(orjson.dumps(_behavior_to_go(behavior))).decode()


def _behavior_to_go(behavior: Object) -> Object:
    return {
        "ScaleUp": _rules_to_go(behavior.get("scaleUp")),
        "ScaleDown": _rules_to_go(behavior.get("scaleDown")),
    }


def _rules_to_go(rules: Object | None) -> Object | None:
    if rules is None:
        return None
    policies = rules.get("policies")
    return {
        "StabilizationWindowSeconds": rules.get("stabilizationWindowSeconds"),
        "SelectPolicy": rules.get("selectPolicy"),
        "Policies": None
        if policies is None
        else [
            {
                "Type": p.get("type", ""),
                "Value": p.get("value", 0),
                "PeriodSeconds": p.get("periodSeconds", 0),
            }
            for p in policies
        ],
    }


def _behavior_from_go(text: str | None) -> Object | None:
    if text is None:
        return None
    try:
        found = _lowered(orjson.loads(text))
        return normalise.normaliser(
            schema.get_schema_type("autoscaling/v2.HorizontalPodAutoscalerBehavior")
        )(found)
    except ValueError:
        return None


def _lowered(value: Any) -> Any:
    if isinstance(value, dict):
        return {k[:1].lower() + k[1:]: _lowered(v) for k, v in value.items()}
    return [_lowered(v) for v in value] if isinstance(value, list) else value
