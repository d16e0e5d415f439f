"""Which pods can use an image that is already on the node, and the kubelet's records about it."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
import pytest
from tests.kubelet.small import Node, make_pod, running_node
from tests.kubelet.test_images import JSON, NGINX, container, failure, secret

from transom.kubelet.image_gc import ImageGC
from transom.kubelet.images import ImageManager
from transom.kubelet.node.checks import check_node_configuration
from transom.kubelet.pull_records import PullRecords
from transom.machinery.objects import Object
from transom.runtime.api import AuthConfig, Image, RuntimeFailure

VERSION = "v1.36.0"
IMAGE = "example.com/team/app:1"
APP = Image("sha256:bbb", (IMAGE,), (), 100)
DENIED = "rpc error: code = Unknown desc = 401 Unauthorized"


def credential(name: str, user: str, password: str) -> Object:
    made = secret(JSON, {"auths": {"example.com": {"username": user, "password": password}}})
    made["metadata"] = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return made


async def ensure(
    images: ImageManager, node: Node, *secrets: str, policy: str = "IfNotPresent"
) -> str:
    """The event of the pod's image, or the reason why the pod does not get it."""
    references = [{"name": name} for name in secrets]
    pod = make_pod("web", container(IMAGE, policy), imagePullSecrets=references)
    if "denied" in secrets or not secrets:
        node.runtime.fail["pull_image"] = [RuntimeFailure("Unknown", "401 Unauthorized")]
    node.recorded.take()
    pulls = sum(call[0] == "pull_image" for call in node.runtime.calls)
    try:
        await images.ensure(pod, pod["spec"]["containers"][0], None)
    finally:
        node.runtime.fail.pop("pull_image", None)
    events = [message for reason, message in node.recorded.take() if reason == "Pulled"]
    if sum(call[0] == "pull_image" for call in node.runtime.calls) > pulls:
        return "pulled"
    return events[0]


def record(node: Node, image_id: str = APP.id) -> Any:
    name = hashlib.sha256(image_id.encode()).hexdigest()
    return orjson.loads(
        node.host.files.read(f"/var/lib/kubelet/image_manager/pulled/sha256-{name}")
    )


PRESENT = f'Container image "{IMAGE}" already present on machine and can be accessed by the pod'


async def test_a_pod_needs_a_credential_for_an_image_that_was_pulled_with_one() -> None:
    async with running_node(version=VERSION) as node:
        node.runtime.registry[IMAGE] = APP
        for name, user, password in (
            ("first", "u", "p"),
            ("copy", "u", "p"),
            ("other", "u2", "p2"),
            ("denied", "x", "y"),
        ):
            node.secrets.known[name] = credential(name, user, password)
        images = ImageManager(node.env)
        assert await ensure(images, node, "first") == "pulled"
        entry = {
            "uid": "uid-first",
            "namespace": "default",
            "name": "first",
            "credentialHash": hashlib.sha256(b'{"username":"u","password":"p"}').hexdigest(),
        }
        kept = record(node)
        assert (kept["kind"], kept["apiVersion"], kept["imageRef"]) == (
            "ImagePulledRecord",
            "kubelet.config.k8s.io/v1beta1",
            APP.id,
        )
        assert kept["credentialMapping"] == {"example.com/team/app": {"kubernetesSecrets": [entry]}}
        assert await ensure(images, node, "first") == PRESENT
        assert await ensure(images, node, "copy") == PRESENT  # the same credential
        known = record(node)["credentialMapping"]["example.com/team/app"]["kubernetesSecrets"]
        assert [one["name"] for one in known] == ["copy", "first"]
        node.secrets.known["first"] = credential("first", "u", "rotated")
        assert await ensure(images, node, "first") == PRESENT  # the same Secret
        assert await ensure(images, node, "other") == "pulled"  # the registry decides
        assert await ensure(images, node, "other") == PRESENT
        pod = make_pod("no", container(IMAGE))
        node.runtime.fail["pull_image"] = [RuntimeFailure("Unknown", "401 Unauthorized")]
        assert await failure(images, pod) == ("ErrImagePull", DENIED)
        never = make_pod("never", container(IMAGE, "Never"))
        assert await failure(images, never) == (
            "ErrImageNeverPull",
            f'Container image "{IMAGE}" is not present with pull policy of Never',
        )


async def test_an_image_that_was_pulled_without_a_credential_is_for_all_pods() -> None:
    async with running_node(version=VERSION) as node:
        node.runtime.registry["nginx:latest"] = NGINX
        images = ImageManager(node.env)
        for name in ("a", "b"):
            pod = make_pod(name, container())
            assert await images.ensure(pod, pod["spec"]["containers"][0], None) == NGINX
        assert record(node, NGINX.id)["credentialMapping"] == {
            "nginx": {"nodePodsAccessible": True}
        }
        assert node.recorded.all[-1] == (
            "Pulled",
            'Container image "nginx" already present on machine and can be accessed by the pod',
        )


@pytest.mark.parametrize(
    ("policy", "allowlist", "verified"),
    [
        ("", (), False),
        ("NeverVerify", (), False),
        ("NeverVerifyPreloadedImages", (), False),
        ("NeverVerifyAllowlistedImages", ("example.com/team/*",), False),
        ("NeverVerifyAllowlistedImages", ("example.com/team/app",), False),
        ("NeverVerifyAllowlistedImages", ("example.com/other/*",), True),
        ("AlwaysVerify", (), True),
    ],
)
async def test_policies_for_preloaded_images(
    policy: str, allowlist: tuple[str, ...], verified: bool
) -> None:
    async with running_node(
        version=VERSION,
        image_pull_credentials_verification_policy=policy,
        preloaded_images_verification_allowlist=allowlist,
    ) as node:
        node.runtime.registry[IMAGE] = node.runtime.store[IMAGE] = APP
        node.secrets.known["good"] = credential("good", "u", "p")
        images = ImageManager(node.env)
        assert await ensure(images, node, "good") == ("pulled" if verified else PRESENT)


@pytest.mark.parametrize(("version", "folder"), [("v1.34.0", False), ("v1.35.0", True)])
async def test_older_kubelets_keep_no_records(version: str, folder: bool) -> None:
    async with running_node(version=version) as node:
        node.runtime.registry[IMAGE] = APP
        node.secrets.known["first"] = credential("first", "u", "p")
        await ensure(ImageManager(node.env), node, "first")
        assert node.host.files.exists("/var/lib/kubelet/image_manager") is folder


async def test_a_pull_that_the_last_kubelet_did_not_record_must_be_verified() -> None:
    async with running_node(version=VERSION) as node:
        records = PullRecords(node.env)
        records.pull_begins(IMAGE)
        node.runtime.registry[IMAGE] = node.runtime.store[IMAGE] = APP
        PullRecords(node.env).recover()
        assert "credentialMapping" not in record(node)
        assert node.host.files.listdir("/var/lib/kubelet/image_manager/pulling") == []
        node.secrets.known["good"] = credential("good", "u", "p")
        images = ImageManager(node.env)
        assert await ensure(images, node, "good") == "pulled"
        assert await ensure(images, node, "good") == PRESENT


async def test_records_of_removed_images_are_removed() -> None:
    async with running_node(version=VERSION) as node:
        node.runtime.registry[IMAGE] = APP
        node.secrets.known["first"] = credential("first", "u", "p")
        await ensure(ImageManager(node.env), node, "first")
        collector = ImageGC(node.env)
        collector.detect()
        node.clock.advance(1000)
        await collector.delete_unused()
        assert node.runtime.store == {}
        assert node.host.files.listdir("/var/lib/kubelet/image_manager/pulled") == []


async def test_settings_that_a_kubelet_refuses() -> None:
    begin = "invalid configuration: "
    async with running_node(
        version=VERSION, image_pull_credentials_verification_policy="Maybe"
    ) as node:
        assert check_node_configuration(node.env.config, node.env.os, node.host) == [
            f'{begin}option "Maybe" specified for imagePullCredentialsVerificationPolicy. Valid '
            'options are "NeverVerify", "NeverVerifyPreloadedImages", '
            '"NeverVerifyAllowlistedImages" or "AlwaysVerify"'
        ]
    allowlist = {"preloaded_images_verification_allowlist": ("example.com/app:1",)}
    policy = {"image_pull_credentials_verification_policy": "NeverVerifyAllowlistedImages"}
    async with running_node(version=VERSION, **policy, **allowlist) as node:
        assert check_node_configuration(node.env.config, node.env.os, node.host) == [
            f"{begin}invalid image pattern in `preloadedImagesVerificationAllowlist`: neither tag "
            "nor digest is accepted in an image reference: example.com/app:1"
        ]
    async with running_node(version="v1.32.0", **policy) as node:
        assert check_node_configuration(node.env.config, node.env.os, node.host) == [
            f"{begin}`imagePullCredentialsVerificationPolicy` must not be set if "
            "KubeletEnsureSecretPulledImages feature gate is not enabled"
        ]


async def test_the_credential_that_a_registry_accepts_is_recorded() -> None:
    async with running_node(version=VERSION) as node:
        node.runtime.registry[IMAGE] = APP
        node.secrets.known["denied"] = credential("denied", "x", "y")
        node.secrets.known["good"] = credential("good", "u", "p")
        images = ImageManager(node.env)
        assert await ensure(images, node, "denied", "good") == "pulled"
        calls = [call[2] for call in node.runtime.calls if call[0] == "pull_image"]
        assert calls == [AuthConfig("x", "y"), AuthConfig("u", "p")]
        known = record(node)["credentialMapping"]["example.com/team/app"]["kubernetesSecrets"]
        assert [one["name"] for one in known] == ["good"]
