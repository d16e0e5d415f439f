"""An operator as its users write them, for kopf: each Database gets a ConfigMap, follows its spec,
and is cleaned up.
"""

from __future__ import annotations

from typing import Any

import kopf
from kubernetes import client, config

config.load_kube_config()
core = client.CoreV1Api()


@kopf.on.startup()
def settle(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.loggers = True
    settings.persistence.finalizer = "example.com/databases"


@kopf.on.create("example.com", "v1", "databases")
def create(spec: Any, name: str, namespace: str, patch: Any, **_: Any) -> dict[str, str]:
    body = {"metadata": {"name": f"{name}-settings"}, "data": {"size": spec["size"]}}
    kopf.adopt(body)
    core.create_namespaced_config_map(namespace, body)
    patch.status["phase"] = "Ready"
    return {"configmap": f"{name}-settings"}


@kopf.on.update("example.com", "v1", "databases", field="spec.size")
def resize(old: str, new: str, name: str, namespace: str, body: Any, **_: Any) -> None:
    core.patch_namespaced_config_map(f"{name}-settings", namespace, {"data": {"size": new}})
    kopf.info(body, reason="Resized", message=f"from {old} to {new}")


@kopf.on.delete("example.com", "v1", "databases", retries=3)
def delete(name: str, namespace: str, retry: int, **_: Any) -> None:
    if retry == 0:
        raise kopf.TemporaryError("not yet", delay=0.1)
    core.create_namespaced_config_map(namespace, {"metadata": {"name": f"{name}-obituary"}})
