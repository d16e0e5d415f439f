"""Limits that pods meet: what lint predicts of a minimal manifest is what a node does with it.

Each limit is tried with a pod that meets it and with one that does not, on a node like the one that
lint received: all pods for one kind of node on the same one. What was seen is kept for the
tests, one for each limit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Literal

import pytest
from tests.kubelet.windows.windows_pods import config, meant, printed, run, states, volume
from tests.network.fabrics import OUTSIDE, make_cluster
from tests.windows.predicting import Prediction, TryNode, on_node, predictions

from transom.client.resources import PODS
from transom.machinery.objects import Object
from transom.network.api import DnsConfig
from transom.network.resolver import resolver_steps

PREDICTIONS = predictions()
SETTLED = 45.0  # seconds: longer than any failure takes to be reported
Seen = Callable[[TryNode, Prediction, Object, Object], Awaitable[None]]
LOOKS: dict[str, Seen] = {}


def look(function: Seen) -> Seen:
    LOOKS[function.__name__] = function
    return function


each = pytest.mark.parametrize("prediction", PREDICTIONS.values(), ids=list(PREDICTIONS))


@each
def test_lint_finds_the_limit_and_nothing_else(prediction: Prediction) -> None:
    assert prediction.found(meets=True) == prediction.foreseen
    assert prediction.found(meets=False) == []


@each
def test_a_node_does_what_lint_predicts(prediction: Prediction) -> None:
    problem = _tried(prediction.group).get(prediction.id)
    if problem is not None:
        raise problem


@cache
def _tried(group: str) -> Mapping[str, Exception]:
    """What went otherwise than predicted, by limit, on the node of a group."""
    tried = [prediction for prediction in PREDICTIONS.values() if prediction.group == group]
    problems: dict[str, Exception] = {}

    async def scenario(node: TryNode) -> None:
        made = {}
        objects = {
            (o["kind"], o["metadata"]["name"]): o
            for prediction in tried
            for o in prediction.objects()
        }
        for obj in objects.values():
            status, message, _ = await node.put(obj)
            assert status == 201, message
        await _bind_claims(node)
        await node.settle(1)
        for prediction in tried:
            made[prediction.id] = [
                await node.put(prediction.pod(meets=meets)) for meets in (True, False)
            ]
        await node.settle(SETTLED)
        for prediction in tried:
            try:
                await _compare(node, prediction, *made[prediction.id])
            except Exception as problem:
                problems[prediction.id] = problem

    disks = any(prediction.id.startswith("WIN-STO-") for prediction in tried)

    async def main() -> None:
        controllers = ("attachdetach",) if disks else ()
        async with on_node(tried[0].nodes, controllers=controllers) as node:
            await scenario(node)

    asyncio.run(main())  # once for all tests of the group
    return problems


async def _bind_claims(node: TryNode) -> None:
    """What the volume controller does."""
    from transom.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

    for claim in (await node.client.list(PERSISTENT_VOLUME_CLAIMS, "default")).items:
        name = claim["spec"]["volumeName"]
        await node.client.update_status(
            PERSISTENT_VOLUME_CLAIMS, {**claim, "status": {"phase": "Bound"}}
        )
        body = {"spec": {"claimRef": {"uid": claim["metadata"]["uid"]}}}
        await node.client.patch(PERSISTENT_VOLUMES, "", name, body)


async def _compare(node: TryNode, prediction: Prediction, met: Any, other: Any) -> None:
    status, message, warned = met
    assert other[0] == 201, other
    if prediction.limit.effect == "rejected":
        assert status == 422 and prediction.words.search(message), message
        return
    assert status == 201, message
    if not prediction.nodes["features"]:  # of which an API server does not know
        foreseen = {prediction.id} if prediction.warned else set()
        assert (
            set(warned) - set(prediction.entry.get("also") or ()) == foreseen and other[2] == []
        ), (warned, other)
    pod, plain = await node.pod(prediction.name()), await node.pod(prediction.name(meets=False))
    assert _runs(plain), await _texts(node, plain)
    closer = LOOKS.get(prediction.entry.get("sees", ""))
    if closer is not None:
        await closer(node, prediction, pod, plain)
    elif prediction.limit.effect == "fails":
        await _fails(node, prediction, pod)
    elif prediction.limit.effect == "ignored":
        await _ignored(node, prediction, pod, plain)
    else:
        raise AssertionError("no way to see it is known")


def _runs(pod: Object) -> bool:
    return pod["status"]["phase"] == "Running" and all(
        one["ready"] and not one["restartCount"] and "running" in one["state"]
        for one in states(pod)
    )


async def _texts(node: TryNode, pod: Object) -> list[tuple[str, str]]:
    """Reason and text of everything that reports a problem: events, and what containers wait for or ended
    with.
    """
    found = [
        (why, text)
        for kind, why, text in await node.about(pod["metadata"]["name"])
        if kind == "Warning"
    ]
    found += [
        (text.removeprefix("Error: "), text) for _, text in found if text.startswith("Error: ")
    ]
    for one in pod["status"].get("containerStatuses") or ():
        for held in (one["state"], one.get("lastState") or {}):
            found += [
                (shown.get("reason", ""), shown.get("message", "")) for shown in held.values()
            ]
    return found


async def _fails(node: TryNode, prediction: Prediction, pod: Object, *, runs: bool = False) -> None:
    recorded = await _texts(node, pod)
    assert _runs(pod) is runs, recorded
    assert prediction.reason in [reason for reason, _ in recorded], recorded
    assert any(prediction.words.search(text) for _, text in recorded), recorded


async def _ignored(
    node: TryNode, prediction: Prediction, pod: Object, plain: Object, *leaving: str
) -> None:
    """The pod runs, and its container is that of a pod without the field: by what the runtime
    received, and by what commands in it say.
    """
    assert _runs(pod), await _texts(node, pod)
    assert not [
        text for kind, _, text in await node.about(pod["metadata"]["name"]) if kind == "Warning"
    ]
    recorded, usual = _handed(node, pod), _handed(node, plain)
    assert {
        key: value for key, value in recorded.items() if value != usual[key] and key not in leaving
    } == {}
    for script in prediction.entry.get("asks") or ():
        assert await _printed(node, pod, script) == await _printed(node, plain, script)


def _handed(node: TryNode, pod: Object) -> dict[str, Any]:
    """What a runtime received for a pod, as far as Windows uses it, without names that are each
    pod's own.
    """
    made, sandbox = config(node, pod), meant(node, pod).config
    names = (
        "command",
        "args",
        "working_dir",
        "env",
        "mounts",
        "devices",
        "stdin",
        "tty",
        "ports",
        "linux",
        "windows",
    )
    shown = {name: getattr(made, name) for name in names} | {
        "dns": sandbox.dns,
        "open": sandbox.ports,
    }
    common = {name: _common(repr(value), pod) for name, value in shown.items()}
    return {**common, "mounts": re.sub(r"containers\W+c\W+[0-9a-f]{8}'", "FILE'", common["mounts"])}


def _common(text: str, pod: Object) -> str:
    name = pod["metadata"]["name"]
    for own, common in ((pod["metadata"]["uid"], "UID"), (name, "NAME"), (name.upper(), "NAME")):
        text = text.replace(own, common)
    return text


async def _printed(node: TryNode, pod: Object, script: str) -> str:
    """What cmd prints, without what is each pod's own: addresses, numbers of processes and of
    bytes.
    """
    text = _common(await printed(node, pod, script), pod).replace(pod["status"]["podIP"], "IP")
    return re.sub(r" *[0-9][0-9,]+\b(?: K\b)?", " N", text) if script == "tasklist" else text


# ---- looking closer ----


@look
async def no_hyperv(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    await _ignored(node, prediction, pod, plain)
    assert not node.runtime._core.sandboxes[meant(node, pod).id].isolation.hyperv


@look
async def own_network(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    await _ignored(node, prediction, pod, plain, "dns")
    assert meant(node, pod).ips[0].startswith("10.244.1.")
    # because the kubelet believes it
    assert "10.96.0.10" not in meant(node, pod).config.dns.servers


@look
async def five_seconds(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    """A process that does not end by itself is given five seconds, not the period it asks for."""
    names = [prediction.name(), prediction.name(meets=False)]
    for name in names:
        await node.client.delete(PODS, "default", name)
    await node.settle(9)
    assert [await node.missing(name) for name in names] == [True, True]


@look
async def no_termination_message(
    node: TryNode, prediction: Prediction, pod: Object, plain: Object
) -> None:
    await _ignored(node, prediction, pod, plain)
    assert config(node, pod).mounts == ()


@look
async def unhealthy(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    await _fails(node, prediction, pod)


@look
async def nothing_there(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    """The container starts in a directory that Windows made for it, in which nothing of Linux
    is.
    """
    assert _runs(pod) and _handed(node, pod)["working_dir"] != _handed(node, plain)["working_dir"]
    assert await printed(node, pod, "cd") == "C:\\etc"
    assert (
        await printed(node, pod, "type C:\\etc\\passwd")
        == "The system cannot find the file specified."
    )


@look
async def one_variable(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    assert [await printed(node, one, "echo %colour%") for one in (pod, plain)] == ["blue", "red"]


@look
async def no_bound(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    assert [config(node, one).windows.resources.memory_limit for one in (pod, plain)] == [
        0,
        16 << 20,
    ]


@look
async def counted_by_requests(
    node: TryNode, prediction: Prediction, pod: Object, plain: Object
) -> None:
    """The container may take its limit; the scheduler counts what it requests."""
    assert _runs(pod) and config(node, pod).windows.resources.memory_limit == 64 << 20
    assert pod["spec"]["containers"][0]["resources"]["requests"]["memory"] == "16Mi"
    assert pod["status"]["qosClass"] == "Burstable"


@look
async def dropped(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    await _ignored(node, prediction, pod, plain)
    assert "os" not in pod["spec"]


@look
async def no_share(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    assert "NERR_Success" in await printed(node, pod, "nltest /query")  # its identity it has
    assert (await run(node, pod, "cmd", "/c", "dir /b \\\\contoso.com\\SYSVOL")).exit_code != 0


def _requested(name: str, dns: DnsConfig, os: Literal["linux", "windows"]) -> list[str]:
    """The names that a resolver asks for."""
    return [step.name for step in resolver_steps(name, dns, os)]


@look
async def files_ignored(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    node.host.files.write(volume(pod, "empty-dir", "v") + "\\resolv.conf", b"nameserver 9.9.9.9\n")
    await _ignored(node, prediction, pod, plain, "mounts")
    shown = await printed(node, pod, "ipconfig /all")
    assert "10.96.0.10" in shown and "9.9.9.9" not in shown


@look
async def one_suffix(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    """Of the list that the pod asks for, a bare name gets the first alone."""
    dns = meant(node, pod).config.dns
    assert {"a.example.com", "b.example.com"} <= set(dns.searches) and len(dns.searches) > 2
    assert _requested("db", dns, "windows") == [f"db.{dns.searches[0]}"]
    assert _requested("db", dns, "linux") == [*(f"db.{suffix}" for suffix in dns.searches), "db"]


@look
async def options_ignored(
    node: TryNode, prediction: Prediction, pod: Object, plain: Object
) -> None:
    # the runtime receives it and does not use it
    await _ignored(node, prediction, pod, plain, "dns")
    requested, usual = meant(node, pod).config.dns, meant(node, plain).config.dns
    assert requested.options != usual.options
    for name in ("db", "db.shop", "db.shop.svc.cluster.local"):
        assert _requested(name, requested, "windows") == _requested(name, usual, "windows")
    assert _requested("db.shop", requested, "linux") != _requested("db.shop", usual, "linux")


@look
async def name_with_a_dot(
    node: TryNode, prediction: Prediction, pod: Object, plain: Object
) -> None:
    """The name that the variable holds is asked for as it is, which no DNS server of a cluster
    knows.
    """
    [[_, name]] = [pair for pair in config(node, pod).env if pair[0] == "DB_HOST"]
    dns = meant(node, pod).config.dns
    assert _requested(name, dns, "windows") == ["db.backend"]
    assert "db.backend.svc.cluster.local" in _requested(name, dns, "linux")


@look
async def directory_by_sub_path(
    node: TryNode, prediction: Prediction, pod: Object, plain: Object
) -> None:
    """What the document calls unsupported is mounted, as long as it is a directory."""
    assert _runs(pod) and "subPath" in str(pod["spec"])
    await run(node, pod, "cmd", "/c", "echo one> C:\\logs\\x")
    assert node.host.files.read(volume(pod, "empty-dir", "v") + "\\logs\\x").strip() == b"one"


@look
async def hidden_drive(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    """The volume takes the place of the drive, and what is written to C: is in it."""
    assert _runs(pod)
    await run(node, pod, "cmd", "/c", "echo one> C:\\x")
    assert node.host.files.read(volume(pod, "empty-dir", "v") + "\\x").strip() == b"one"
    assert "Users" not in await printed(node, pod, "dir /b C:\\")
    assert "Users" in await printed(node, plain, "dir /b C:\\")


@look
async def on_the_disk(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    assert _runs(pod)
    before = node.host.disk().used
    node.host.files.write(volume(pod, "empty-dir", "v") + "\\big", b"x" * (1 << 20))
    assert node.host.disk().used - before == 1 << 20


@look
async def modes(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    """Every user may read."""
    await _ignored(node, prediction, pod, plain)
    status = node.host.files.stat(volume(pod, "configmap", "v") + "\\a.txt")
    assert status.mode & 0o444 == 0o444


@look
async def no_answer(node: TryNode, prediction: Prediction, pod: Object, plain: Object) -> None:
    """What `ping` sends gets no answer from outside, and what `curl` sends does."""
    assert pod["spec"]["containers"][0]["command"][-1] == OUTSIDE
    cluster = make_cluster("l2bridge")
    cluster.pod("w", "windows-1")
    found = {
        protocol: cluster.walk("w", OUTSIDE, protocol=protocol).outcome
        for protocol in ("icmp", "tcp")
    }
    assert found == {"icmp": "dropped", "tcp": "delivered"}
