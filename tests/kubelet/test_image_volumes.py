"""Volumes with the files of an image."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.releases import Release

from .test_kubelet import SERVERCORE, log, phase, shell, state

SETTINGS = {"flavour": "containerd", "release": Release(1, 36)}
NGINX = "nginx:1.19"
PAGE = "usr/share/nginx/html"


def pod(script: str, reference: str = NGINX, policy: str = "", **mount: Any) -> Any:
    source = {"reference": reference} | ({"pullPolicy": policy} if policy else {})
    mounts = [{"name": "v", "mountPath": "/volume", **mount}]
    return {
        "restartPolicy": "Never",
        "volumes": [{"name": "v", "image": source}],
        "containers": [shell(script, volumeMounts=mounts)],
    }


async def messages(node: Any) -> list[str]:
    return [message for *_, message in await node.events()]


async def waiting(node: Any, reason: str) -> str:
    for _ in range(30):
        statuses = (await node.pod("p"))["status"].get("containerStatuses") or ()
        for status in statuses:
            found = status["state"].get("waiting") or {}
            if found.get("reason") == reason:
                return str(found.get("message", ""))
        await node.settle(1)
    raise AssertionError(f"{statuses}")


@pytest.mark.parametrize("sub_path", ["", PAGE])
async def test_a_container_reads_the_files_of_the_image(node: Any, sub_path: str) -> None:
    page = "index.html" if sub_path else f"{PAGE}/index.html"
    mount = {"subPath": sub_path} if sub_path else {}
    async with node("linux", **SETTINGS) as node:
        await node.create("p", **pod(f"head -c 15 /volume/{page}", **mount))
        found = await phase(node, "p", "Succeeded")
        assert log(node, found) == "<!DOCTYPE html>"
        assert f'Pulling image "{NGINX}"' in await messages(node)


async def test_the_files_cannot_be_changed(node: Any) -> None:
    async with node("linux", **SETTINGS) as node:
        await node.create("p", **pod("touch /volume/new || echo refused"))
        found = await phase(node, "p", "Succeeded")
        assert "Read-only file system" in log(node, found)


async def test_an_image_that_cannot_be_pulled_shows_in_the_container(node: Any) -> None:
    async with node("linux", **SETTINGS) as node:
        await node.create("p", **pod("true", reference="no-such-image:v1"))
        assert "no-such-image:v1" in await waiting(node, "ErrImagePull")
        message = await waiting(node, "ImagePullBackOff")
        assert message.startswith('Back-off pulling image "no-such-image:v1": ErrImagePull: ')
        assert "Error: ErrImagePull" in await messages(node)


async def test_never_pulls_with_that_policy(node: Any) -> None:
    async with node("linux", **SETTINGS) as node:
        await node.create("p", **pod("true", policy="Never"))
        message = await waiting(node, "ErrImageNeverPull")
        assert message == f'Container image "{NGINX}" is not present with pull policy of Never'


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("nowhere", "openat nowhere: no such file or directory"),
        ("etc/passwd", 'only directory subpath is supported, subpath: "etc/passwd"'),
    ],
)
async def test_only_directories_of_the_image_can_be_mounted(
    node: Any, path: str, text: str
) -> None:
    async with node("linux", **SETTINGS) as node:
        await node.create("p", **pod("true", subPath=path))
        message = await waiting(node, "CreateContainerError")
        assert message.startswith(
            f'failed to mount image volume: failed to ensure image subpath "{path}" in "/run/'
        )
        assert text in message


async def test_an_image_in_use_by_a_volume_is_not_garbage(node: Any) -> None:
    async with node("linux", **SETTINGS) as node:
        await node.create("p", **pod("sleep 1000"))
        await phase(node, "p", "Running")
        await node.settle(300)
        await node.kubelet._housekeeping._images.delete_unused()
        assert node.runtime.image(NGINX) is not None


async def test_windows_containers_have_none(node: Any) -> None:
    async with node("windows", **SETTINGS) as node:
        mounts = [{"name": "v", "mountPath": "C:\\v"}]
        container = {"name": "c", "image": SERVERCORE, "command": ["cmd"], "volumeMounts": mounts}
        volumes = [{"name": "v", "image": {"reference": SERVERCORE}}]
        await node.create("p", os={"name": "windows"}, volumes=volumes, containers=[container])
        assert 'failed to mkdir ""' in await waiting(node, "CreateContainerError")


async def test_a_kubelet_without_the_feature_has_no_plugin(node: Any) -> None:
    gates = {"ImageVolume": True}
    settings = {"flavour": "containerd", "release": Release(1, 35), "api_gates": gates}
    async with node("linux", feature_gates={"ImageVolume": False}, **settings) as node:
        await node.create("p", **pod("true"))
        await node.settle(5)
        assert any("no volume plugin matched" in text for text in await messages(node))
        assert "waiting" in state(await node.pod("p"))["state"]
