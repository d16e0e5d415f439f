from __future__ import annotations

import asyncio

import pytest
from tests.runtime.sim import harness

from transom.runtime.api import AuthConfig, RuntimeFailure
from transom.runtime.sim.catalogue import (
    CatalogueError,
    catalogue_with,
    default_catalogue,
    parse_catalogue,
    parse_image_size,
)
from transom.runtime.sim.engine import Flavour
from transom.runtime.sim.names import parse_image_name

MINE = """
images:
- name: registry.example/secret
  private: true
- name: registry.example/locked
  private: {ann: word}
- name: registry.example/old
  windows: [14393]
  manifest: single
- name: registry.example/new
  windows: [20348]
  manifest: single
- name: registry.example/listed
  windows: [14393, 20348]
- name: nginx
  tags: [mine]
  user: "4711:99"
  size: 2GB
"""


@pytest.mark.parametrize(
    ("image", "whole", "familiar"),
    [
        ("nginx", "docker.io/library/nginx:latest", "nginx"),
        ("me/app:1", "docker.io/me/app:1", "me/app"),
        ("index.docker.io/me/app", "docker.io/me/app:latest", "me/app"),
        ("localhost/app", "localhost/app:latest", "localhost/app"),
        ("host:5000/app:2", "host:5000/app:2", "host:5000/app"),
        (
            "mcr.microsoft.com/windows/nanoserver:1809",
            "mcr.microsoft.com/windows/nanoserver:1809",
            "mcr.microsoft.com/windows/nanoserver",
        ),
        ("nginx:1.19@sha256:" + "a" * 64, "docker.io/library/nginx@sha256:" + "a" * 64, "nginx"),
    ],
)
def test_names_are_made_whole(image: str, whole: str, familiar: str) -> None:
    assert (str(parse_image_name(image)), parse_image_name(image).familiar) == (whole, familiar)


@pytest.mark.parametrize("name", ["e2e-test-images/httpd:2.4.38-4", "coredns/coredns:v1.11.3"])
def test_images_have_both_names_of_the_registry(name: str) -> None:
    """k8s.gcr.io became registry.k8s.io."""
    catalogue = default_catalogue()
    former, current = (
        catalogue.find(parse_image_name(f"{registry}/{name}")).entry
        for registry in ("k8s.gcr.io", "registry.k8s.io")
    )
    assert former is current and not current.unlisted


@pytest.mark.parametrize(
    ("image", "userland"),
    [
        ("nginx:1.15", "gnu"),
        ("nginx:1.15-alpine", "busybox"),
        ("redis:5.0.5-alpine3.12", "busybox"),
        ("nginx:alpine", "busybox"),
        ("coredns/coredns:1-alpine", "none"),
    ],
)
def test_a_tag_that_names_alpine_brings_its_commands(image: str, userland: str) -> None:
    found = catalogue_with("images: []", "mine").find(parse_image_name(image))
    assert found.spec(found.platforms[0]).info.userland == userland


@pytest.mark.parametrize(
    ("image", "builds"),
    [
        ("mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019", {17763}),
        ("mcr.microsoft.com/dotnet/framework/aspnet:4.8-windowsservercore-ltsc2022", {20348}),
        ("microsoft/iis:windowsservercore-1709", {16299}),
        ("mcr.microsoft.com/dotnet/samples:aspnetapp-nanoserver-1809", {17763}),
        ("registry.example/listed:1", {14393, 20348}),
        ("nginx:1809", {0}),
    ],
)
def test_a_tag_that_names_a_build_is_of_that_build_alone(image: str, builds: set[int]) -> None:
    platforms = (
        catalogue_with(MINE.replace("[mine]", '["1809"]'), "mine")
        .find(parse_image_name(image))
        .platforms
    )
    assert {platform.build for platform in platforms} == builds


PULLS: list[tuple[str, Flavour, int, str, str]] = [
    (
        "windows",
        "docker",
        17763,
        "k8s.gcr.io/pause:3.2",
        "Unknown: no matching manifest for windows/amd64 10.0.17763 in the manifest list entries",
    ),
    (
        "windows",
        "containerd",
        17763,
        "mcr.microsoft.com/windows/servercore:1909",
        'NotFound: failed to pull and unpack image "mcr.microsoft.com/windows/servercore:1909": '
        "no match for platform in manifest: not found",
    ),
    (
        "windows",
        "docker",
        17763,
        "mcr.microsoft.com/windows/servercore:1909",
        "Unknown: no matching manifest for windows/amd64 10.0.17763 in the manifest list entries",
    ),
    (
        "windows",
        "docker",
        17763,
        "registry.example/new",
        "Unknown: a Windows version 10.0.20348-based image is incompatible with a 10.0.17763 host",
    ),
    (
        "windows",
        "docker",
        17763,
        "someone/linux-app",
        'Unknown: image operating system "linux" cannot be used on this platform',
    ),
    (
        "linux",
        "docker",
        0,
        "someone/windows-app:ltsc2019",
        'Unknown: image operating system "windows" cannot be used on this platform',
    ),
    (
        "linux",
        "docker",
        0,
        "mcr.microsoft.com/windows/nanoserver:1809",
        "Unknown: no matching manifest for linux/amd64 in the manifest list entries",
    ),
    (
        "linux",
        "docker",
        0,
        "nginx:1.161",
        (
            "Unknown: Error response from daemon: manifest for nginx:1.161 not found: manifest "
            "unknown: manifest unknown"
        ),
    ),
    (
        "linux",
        "containerd",
        0,
        "nginx:1.161",
        'NotFound: failed to pull and unpack image "docker.io/library/nginx:1.161": failed '
        "to resolve reference "
        '"docker.io/library/nginx:1.161": docker.io/library/nginx:1.161: not found',
    ),
    (
        "linux",
        "docker",
        0,
        "nonexistent-image",
        "Unknown: Error response from daemon: pull access denied for nonexistent-image, "
        "repository does not exist or may "
        "require 'docker login': denied: requested access to the resource is denied",
    ),
    (
        "linux",
        "docker",
        0,
        "webserver:404",
        (
            "Unknown: Error response from daemon: manifest for webserver:404 not found: manifest "
            "unknown: manifest unknown"
        ),
    ),
    (
        "linux",
        "docker",
        0,
        "registry.invalid/app:1",
        (
            "Unknown: Error response from daemon: Get https://registry.invalid/v2/: dial tcp: "
            "lookup registry.invalid: no such host"
        ),
    ),
]


@pytest.mark.parametrize(("os", "flavour", "build", "image", "failure"), PULLS)
async def test_what_cannot_be_pulled_says_why(
    os: str, flavour: Flavour, build: int, image: str, failure: str
) -> None:
    r = harness.make(os, flavour, build=build or 17763, catalogue=catalogue_with(MINE, "mine"))  # type: ignore[arg-type]
    with pytest.raises(RuntimeFailure) as raised:
        await r.do(r.runtime.pull_image(image))
    assert f"{raised.value.code}: {raised.value.description}" == failure


async def test_images_of_older_builds_are_pulled_by_docker_and_not_by_containerd() -> None:
    mine = catalogue_with(MINE, "mine")
    for image in ("registry.example/old", "registry.example/listed"):
        r = harness.make("windows", "docker", catalogue=mine)
        assert await r.do(r.runtime.pull_image(image))
    r = harness.make("windows", "containerd", catalogue=mine)
    assert await r.do(r.runtime.pull_image("registry.example/old"))
    with pytest.raises(RuntimeFailure):
        await r.do(r.runtime.pull_image("registry.example/listed"))


async def test_private_images_want_credentials() -> None:
    r = harness.make(catalogue=catalogue_with(MINE, "mine"))
    with pytest.raises(RuntimeFailure, match="pull access denied"):
        await r.do(r.runtime.pull_image("registry.example/secret"))
    assert await r.do(r.runtime.pull_image("registry.example/secret", AuthConfig("anyone", "x")))
    with pytest.raises(RuntimeFailure, match="incorrect username or password"):
        await r.do(r.runtime.pull_image("registry.example/locked", AuthConfig("ann", "wrong")))
    assert await r.do(r.runtime.pull_image("registry.example/locked", AuthConfig("ann", "word")))


async def test_an_image_has_an_id_tags_digests_and_a_user() -> None:
    mine = catalogue_with(MINE, "mine")
    docker, containerd = (
        harness.make(catalogue=mine),
        harness.make(flavour="containerd", catalogue=mine),
    )
    reference = await docker.do(docker.runtime.pull_image("nginx:mine"))
    image = docker.runtime.image("nginx:mine")
    assert image is not None
    assert (image.tags, image.digests, image.uid, image.size) == (
        ("nginx:mine",),
        (reference,),
        4711,
        2_000_000_000,
    )
    assert docker.runtime.image(image.id) == docker.runtime.image(reference) == image
    assert docker.runtime.image("nginx") is None
    assert await containerd.do(containerd.runtime.pull_image("nginx:mine")) == image.id
    other = containerd.runtime.image(image.id)
    assert other is not None
    assert other.tags == ("docker.io/library/nginx:mine",)
    await docker.runtime.remove_image(image.id)
    assert docker.runtime.images() == []
    assert docker.runtime.image(reference) is None


async def test_a_pull_takes_time_and_room_once() -> None:
    r = harness.make()
    used = r.host.disk().used
    pulls = [asyncio.ensure_future(r.runtime.pull_image("nginx")) for _ in range(2)]
    await r.clock.run_for(0.15)
    assert not any(pull.done() for pull in pulls)
    await r.clock.run_for(0.15)
    assert all(pull.done() for pull in pulls)
    assert r.host.disk().used - used == r.runtime.image_filesystem().used == 133_000_000
    r.host.fill_disk()
    with pytest.raises(RuntimeFailure, match="no space left on device"):
        await r.do(r.runtime.pull_image("redis"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[]", "a mapping with the key images is wanted"),
        ("images: [{size: 1MB}]", "images[0]: a name is wanted"),
        ("images: [{name: a, colour: red}]", "images[0]: unknown field 'colour'"),
        ("images: [{name: a, size: big}]", "not a size: 'big'"),
        ("images: [", "yaml: line 1"),
    ],
)
def test_a_bad_catalogue_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(CatalogueError) as raised:
        parse_catalogue(text, "mine.yaml")
    assert complaint in str(raised.value)


def test_sizes() -> None:
    assert [parse_image_size(text) for text in ("10", "1.5kB", "2MiB", "5GB", 7)] == [
        10,
        1500,
        2 << 20,
        5 * 10**9,
        7,
    ]
