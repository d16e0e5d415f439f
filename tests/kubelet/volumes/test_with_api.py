"""Volumes and environments through the API server, as the node: it may read what its pods name and
nothing else.
"""

from __future__ import annotations

import random
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.inline_workers import InlineWorkers
from tests.kubelet.conftest import NODE, Cluster, NoServices, no_dial

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.events import EventRecorder
from transom.client.resources import CONFIG_MAPS, SECRETS
from transom.kubelet import os_linux
from transom.kubelet.base import KubeletContext
from transom.kubelet.config import KubeletConfig
from transom.kubelet.referenced import ReferencedObjects, ReferenceFailure
from transom.kubelet.volumes.manager import VolumeManager
from transom.machinery.releases import DEFAULT
from transom.machines.linux import LinuxHost
from transom.store.memory import MemoryStore

SOURCES = [
    {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
    {"configMap": {"name": "conf"}},
    {"secret": {"name": "sec"}},
    {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
]


def new_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    form = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return key.private_bytes(*form)


async def test_a_node_reads_what_its_pods_name() -> None:
    cluster = Cluster()
    key = new_key()
    options = ServerOptions(
        store=MemoryStore(cluster.clock),
        workers=InlineWorkers(),
        clock=cluster.clock,
        rng=cluster.rng,
        service_account_key=key,
    )
    cluster.api = build_api_server(options)
    cluster.client = InProcessClient(
        cluster.api, UserInfo("admin", ("system:masters", "system:authenticated"))
    )
    await cluster.start()
    await cluster.client.create(
        CONFIG_MAPS, "default", {"metadata": {"name": "conf"}, "data": {"a": "1"}}
    )
    await cluster.client.create(
        SECRETS, "default", {"metadata": {"name": "sec"}, "data": {"s": "eA=="}}
    )
    await cluster.client.create(SECRETS, "default", {"metadata": {"name": "other"}})
    mounts = [{"name": "p", "mountPath": "/p"}]
    pod = await cluster.create(
        "web",
        volumes=[{"name": "p", "projected": {"sources": SOURCES}}],
        containers=[{"name": "c", "image": "i", "volumeMounts": mounts}],
    )
    await cluster.settle()
    client = cluster.node_client()
    host = LinuxHost(NODE, cluster.clock)
    events = EventRecorder(
        client, "kubelet", cluster.clock, random.Random(1), release=DEFAULT, host=NODE
    )
    runtime: Any = None
    env = KubeletContext(
        KubeletConfig(NODE, "192.168.0.1"),
        os_linux.RULES,
        client,
        cluster.clock,
        random.Random(1),
        events,
        host,
        runtime,
        NoServices(),
        no_dial,
        lambda: None,
    )
    objects = ReferencedObjects(client, cluster.clock)
    volumes = VolumeManager(env, objects)
    await volumes.mount(pod)
    path = volumes.of(pod["metadata"]["uid"])["p"].path
    read = {name: host.files.read(f"{path}/{name}") for name in ("a", "s", "name")}
    assert read == {"a": b"1", "s": b"x", "name": b"web"}
    assert host.files.read(f"{path}/token").count(b".") == 2
    assert host.files.stat(f"{path}/token").mode == 0o644
    try:
        await objects.secret("default", "other")
        raise AssertionError("a node must not read what no pod of it names")
    except ReferenceFailure as problem:
        assert str(problem) == "failed to sync secret cache: timed out waiting for the condition"
    await cluster.api.stop()
