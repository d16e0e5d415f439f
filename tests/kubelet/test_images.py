"""Images: policies, back-off, credentials, and every text people see about them."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import orjson
import pytest
from tests.kubelet.small import make_pod, running_node

from transom.kubelet import credentials, imagenames
from transom.kubelet.failures import ContainerFailure
from transom.kubelet.imagenames import ImageNameError
from transom.kubelet.images import ImageManager
from transom.machinery.objects import Object
from transom.runtime.api import AuthConfig, Image, RuntimeFailure

NGINX = Image("sha256:aaa", ("nginx:latest",), (), 100)


def container(image: str = "nginx", policy: str = "IfNotPresent") -> Object:
    return {"name": "app", "image": image, "imagePullPolicy": policy}


async def failure(images: ImageManager, pod: Object) -> tuple[str, str]:
    with pytest.raises(ContainerFailure) as problem:
        await images.ensure(pod, pod["spec"]["containers"][0], None)
    return problem.value.reason, str(problem.value)


@pytest.mark.parametrize(
    ("policy", "pulled"), [("Always", True), ("IfNotPresent", False), ("Never", False)]
)
async def test_policy_with_the_image_at_hand(policy: str, pulled: bool) -> None:
    async with running_node() as node:
        node.runtime.registry["nginx:latest"] = node.runtime.store["nginx:latest"] = NGINX
        node.runtime.pull_seconds = 1.25
        pod = make_pod("web", container(policy=policy))
        task = asyncio.ensure_future(
            ImageManager(node.env).ensure(pod, pod["spec"]["containers"][0], None)
        )
        await node.clock.run_for(2)
        assert await task == NGINX
        assert node.recorded.all == (
            [
                ("Pulling", 'Pulling image "nginx"'),
                ("Pulled", 'Successfully pulled image "nginx" in 1.25s'),
            ]
            if pulled
            else [("Pulled", 'Container image "nginx" already present on machine')]
        )
        assert set(node.recorded.paths) == {"spec.containers{app}"}


async def test_a_pull_that_fails_backs_off_for_longer_each_time() -> None:
    async with running_node() as node:
        images, pod = ImageManager(node.env), make_pod("web", container("example.com/none:1"))
        text = (
            "rpc error: code = NotFound desc = failed to pull and unpack image "
            '"example.com/none:1": not found'
        )
        assert await failure(images, pod) == ("ErrImagePull", text)
        assert node.recorded.take() == [
            ("Pulling", 'Pulling image "example.com/none:1"'),
            ("Failed", f'Failed to pull image "example.com/none:1": {text}'),
            ("Failed", "Error: ErrImagePull"),
        ]
        back_off = 'Back-off pulling image "example.com/none:1"'
        assert await failure(images, pod) == ("ImagePullBackOff", back_off)
        assert node.recorded.take() == [
            ("BackOff", back_off),
            ("Failed", "Error: ImagePullBackOff"),
        ]
        for seconds in (10, 20, 40, 80, 160, 300, 300):
            assert images.retry_after(pod, pod["spec"]["containers"][0]) == seconds
            node.clock.advance(seconds - 1)
            assert (await failure(images, pod))[0] == "ImagePullBackOff"
            node.clock.advance(1)
            assert (await failure(images, pod))[0] == "ErrImagePull"
        node.clock.advance(601)  # long without trouble: from the start again
        assert (await failure(images, pod))[0] == "ErrImagePull"
        assert images.retry_after(pod, pod["spec"]["containers"][0]) == 10


@pytest.mark.parametrize(
    ("image", "policy", "reason", "event", "message"),
    [
        (
            "nginx",
            "Never",
            "ErrImageNeverPull",
            "ErrImageNeverPull",
            'Container image "nginx" is not present with pull policy of Never',
        ),
        (
            "Nginx",
            "Always",
            "InvalidImageName",
            "InspectFailed",
            'Failed to apply default image tag "Nginx": couldn\'t parse image reference '
            '"Nginx": invalid reference format: '
            "repository name must be lowercase",
        ),
        (
            "a:b:c",
            "Always",
            "InvalidImageName",
            "InspectFailed",
            (
                'Failed to apply default image tag "a:b:c": couldn\'t parse image reference '
                '"a:b:c": invalid reference format'
            ),
        ),
    ],
)
async def test_images_that_cannot_be_had(
    image: str, policy: str, reason: str, event: str, message: str
) -> None:
    async with running_node() as node:
        pod = make_pod("web", container(image, policy))
        assert await failure(ImageManager(node.env), pod) == (reason, message)
        assert node.recorded.all == [(event, message), ("Failed", f"Error: {reason}")]


async def test_a_runtime_that_cannot_say() -> None:
    async with running_node() as node:
        node.runtime.fail["image"] = [RuntimeFailure("Unknown", "broken")]
        reason, message = await failure(ImageManager(node.env), make_pod("web", container()))
        assert (reason, message) == (
            "ImageInspectError",
            'Failed to inspect image "nginx": rpc error: code = Unknown desc = broken',
        )


async def test_pulls_come_one_after_the_other_and_not_too_many() -> None:
    async with running_node(registry_pull_qps=0.001, registry_burst=2) as node:
        node.runtime.pull_seconds = 1
        pods = [make_pod(f"p{n}", container(f"i{n}")) for n in range(3)]
        for n in range(3):
            node.runtime.registry[f"i{n}:latest"] = NGINX
        images = ImageManager(node.env)
        tasks = [
            asyncio.ensure_future(images.ensure(p, p["spec"]["containers"][0], None)) for p in pods
        ]
        await node.clock.run_for(3)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [m for r, m in node.recorded.all if r == "Pulled"] == [
            'Successfully pulled image "i0" in 1s',
            'Successfully pulled image "i1" in 2s',
        ]
        assert str(results[2]) == "pull QPS exceeded"


@pytest.mark.parametrize("seconds", [0.0, 0.1, 3.0])
async def test_serial_pulls_wait_for_each_other_instead_of_exceeding_the_default_limit(
    seconds: float,
) -> None:
    async with running_node() as node:
        node.runtime.pull_seconds = seconds
        node.runtime.registry["nginx:latest"] = NGINX
        images = ImageManager(node.env)
        pods = [make_pod(f"p{n}", container("nginx", "Always")) for n in range(60)]
        tasks = [
            asyncio.ensure_future(images.ensure(p, p["spec"]["containers"][0], None)) for p in pods
        ]
        await node.clock.run_for(200)
        await asyncio.gather(*tasks)
        assert (
            sorted(reason for reason, _ in node.recorded.all) == ["Pulled"] * 60 + ["Pulling"] * 60
        )


async def test_parallel_pulls_exceed_the_limit() -> None:
    async with running_node(serialize_image_pulls=False) as node:
        node.runtime.registry["nginx:latest"] = NGINX
        images = ImageManager(node.env)
        pods = [make_pod(f"p{n}", container("nginx", "Always")) for n in range(12)]
        tasks = [
            asyncio.ensure_future(images.ensure(p, p["spec"]["containers"][0], None)) for p in pods
        ]
        await node.clock.run_for(1)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(result) for result in results if isinstance(result, Exception)] == [
            "pull QPS exceeded"
        ] * 2


def secret(kind: str, config: Any) -> Object:
    key = ".dockerconfigjson" if kind.endswith("json") else ".dockercfg"
    return {"type": kind, "data": {key: base64.b64encode(orjson.dumps(config)).decode()}}


JSON, CFG = "kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"


@pytest.mark.parametrize(
    ("place", "image", "fits"),
    [
        ("https://index.docker.io/v1/", "nginx", True),
        ("docker.io", "nginx", True),
        ("https://index.docker.io/v1/", "example.com/a", False),
        ("example.com", "example.com/a", True),
        ("example.com/team", "example.com/team/a", True),
        ("example.com/team", "example.com/other/a", False),
        ("https://example.com/v2/", "example.com/a", True),
        ("*.example.com", "eu.example.com/a", True),
        ("*.example.com", "a.eu.example.com/a", False),
        ("reg[12].example.com", "reg2.example.com/a", True),
        ("example.com:5000", "example.com:5000/a", True),
        ("example.com", "example.com:5000/a", False),
    ],
)
def test_credentials_fit(place: str, image: str, fits: bool) -> None:
    packed = base64.b64encode(b"u:p:q").decode().rstrip("=")
    repository = imagenames.parse(image).repository
    for config in (
        secret(JSON, {"auths": {place: {"auth": packed}}}),
        secret(CFG, {place: {"auth": packed}}),
    ):
        found = credentials.lookup_credentials([config], repository)
        assert [tracked.auth for tracked in found] == ([AuthConfig("u", "p:q")] if fits else [])


async def test_the_more_particular_credential_is_tried_first_and_failures_are_summed_up() -> None:
    async with running_node() as node:
        node.secrets.known["regcred"] = secret(
            JSON,
            {
                "auths": {
                    "example.com": {"username": "all", "password": "1"},
                    "example.com/team": {"username": "team", "password": "2"},
                }
            },
        )
        pod = make_pod(
            "web",
            container("example.com/team/a:1"),
            imagePullSecrets=[{"name": "gone"}, {"name": "regcred"}],
        )
        node.runtime.fail["pull_image"] = [
            RuntimeFailure("Unknown", "denied"),
            RuntimeFailure("Unknown", "also denied"),
        ]
        reason, message = await failure(ImageManager(node.env), pod)
        assert (reason, message) == (
            "ErrImagePull",
            (
                "[rpc error: code = Unknown desc = denied, rpc error: code = Unknown desc = also "
                "denied]"
            ),
        )
        assert [c[2] for c in node.runtime.calls if c[0] == "pull_image"] == [
            AuthConfig("team", "2"),
            AuthConfig("all", "1"),
        ]


HEX64 = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEX64, f"invalid repository name ({HEX64}), cannot specify 64-byte hexadecimal strings"),
        ("", "invalid reference format"),
        ("a b", "invalid reference format"),
        ("a" * 30 + "!", "invalid reference format"),
        ("a@sha256:" + "0" * 32, "invalid checksum digest length"),
        ("a@md5:" + "0" * 32, "unsupported digest algorithm"),
        ("example.com/A", "invalid reference format: repository name must be lowercase"),
        ("/".join(["a" * 60] * 5), "repository name must not be more than 255 characters"),
    ],
)
def test_bad_names(text: str, problem: str) -> None:
    with pytest.raises(ImageNameError) as error:
        imagenames.parse(text)
    assert str(error.value) == problem


@pytest.mark.parametrize(
    ("text", "tagged"),
    [
        ("nginx", "nginx:latest"),
        ("nginx:1", "nginx:1"),
        ("localhost:5000/a", "localhost:5000/a:latest"),
        (f"a@sha256:{HEX64}", f"a@sha256:{HEX64}"),
        ("a_b/c__d--e:X", "a_b/c__d--e:X"),
    ],
)
def test_default_tag(text: str, tagged: str) -> None:
    assert imagenames.with_default_tag(text) == tagged
