"""Client libraries of other projects: the official Python client, and lightkube."""

from __future__ import annotations

import secrets
import threading
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def test_official_client_pages_patches_and_watches(cluster: Any) -> None:
    from kubernetes import client, config, watch

    core = client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig)))
    ns = f"py-{secrets.token_hex(3)}"
    core.create_namespace({"metadata": {"name": ns}})
    try:
        for i in range(5):
            meta = {"name": f"c{i}", "labels": {"mine": "1"}}
            core.create_namespaced_config_map(ns, {"metadata": meta, "data": {"i": str(i)}})
        names, token = [], None
        while True:
            page = core.list_namespaced_config_map(
                ns, label_selector="mine=1", limit=2, _continue=token
            )
            names += [item.metadata.name for item in page.items]
            token = page.metadata._continue
            if not token:
                break
        assert names == [f"c{i}" for i in range(5)]
        patched = core.patch_namespaced_config_map("c0", ns, {"data": {"j": "x"}})
        assert patched.data == {"i": "0", "j": "x"}
        version = core.list_namespaced_config_map(ns).metadata.resource_version
        threading.Timer(0.1, lambda: core.delete_namespaced_config_map("c1", ns)).start()
        seen = [
            (event["type"], event["object"].metadata.name)
            for event in watch.Watch().stream(
                core.list_namespaced_config_map,
                ns,
                resource_version=version,
                label_selector="mine=1",
                timeout_seconds=2,
            )
        ]
        assert seen == [("DELETED", "c1")]
        with pytest.raises(client.ApiException) as caught:
            core.create_namespaced_config_map(ns, {"metadata": {"name": "c0"}})
        assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    finally:
        core.delete_namespace(ns)


def test_lightkube_applies_and_lists(cluster: Any) -> None:
    from lightkube import Client, KubeConfig
    from lightkube.core.exceptions import ApiError
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import ConfigMap, Namespace

    light = Client(KubeConfig.from_file(str(cluster.kubeconfig)).get(), field_manager="tests")
    ns = f"lk-{secrets.token_hex(3)}"
    light.create(Namespace(metadata=ObjectMeta(name=ns)))
    try:
        made = light.apply(ConfigMap(metadata=ObjectMeta(name="a", namespace=ns), data={"k": "1"}))
        assert made.metadata is not None and made.metadata.managedFields[0].operation == "Apply"  # type: ignore[index]
        again = light.apply(ConfigMap(metadata=ObjectMeta(name="a", namespace=ns), data={"k": "2"}))
        assert again.data == {"k": "2"}
        assert "a" in [c.metadata.name for c in light.list(ConfigMap, namespace=ns)]  # type: ignore[union-attr]
        light.delete(ConfigMap, "a", namespace=ns)
        with pytest.raises(ApiError):
            light.get(ConfigMap, "a", namespace=ns)
    finally:
        light.delete(Namespace, ns)
