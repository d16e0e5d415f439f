"""Server-side apply to a built-in kind through several of its versions."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from tests.apiserver.harness import Api, start

_TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
_METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}
_CPU: dict[str, dict[str, Any]] = {
    "autoscaling/v1": {"targetCPUUtilizationPercentage": 50},
    "autoscaling/v2": {"metrics": [_METRIC]},
}


async def _apply(api: Api, name: str, version: str, manager: str, **spec: Any) -> Any:
    body = {
        "apiVersion": version,
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": _TARGET, "maxReplicas": 3, **spec},
    }
    path = f"/apis/{version}/namespaces/default/horizontalpodautoscalers/{name}"
    query = f"fieldManager={manager}&force=true"
    return await api.ok("PATCH", f"{path}?{query}", body, media="application/apply-patch+yaml")


@pytest.mark.parametrize("versions", list(product(_CPU, repeat=3)), ids="-".join)
async def test_a_manager_may_apply_in_another_version_than_before(versions: tuple[str]) -> None:
    api = await start()
    for version, manager in zip(versions, "aba", strict=True):
        made = await _apply(api, "h", version, manager, **_CPU[version])
        assert made["apiVersion"] == version
        assert made["spec"].items() >= _CPU[version].items()
        owned = {e["manager"]: e for e in made["metadata"]["managedFields"]}[manager]
        assert owned["apiVersion"] == version
        assert {f"f:{key}" for key in _CPU[version]} <= owned["fieldsV1"]["f:spec"].keys()
