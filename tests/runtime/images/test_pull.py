"""Pulls from a registry that behaves, and from ones that do not."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.conftest import ContextFactory
from tests.runtime.images.conftest import Hasty
from tests.runtime.images.registry_server import USER, RegistryServer, Request
from tests.runtime.images.tars import Built, E, folder, image, index, tar

from transom.kit import pki
from transom.runtime.api import AuthConfig, RuntimeFailure
from transom.runtime.images import model
from transom.runtime.images.model import PullProgress, StoredImage, digest_of
from transom.runtime.images.registry import Registries
from transom.runtime.images.service import ImageService

AUTH = AuthConfig(*USER)
Scenario = Callable[[ImageService, RegistryServer], Awaitable[Any]]


@pytest.fixture
def run_harness(tmp_path: Path, clock: Hasty) -> ContextFactory:
    @asynccontextmanager
    async def run(**server: Any) -> AsyncIterator[Any]:
        service = ImageService(tmp_path / "images", clock=clock, registries=Registries())
        async with RegistryServer(**server) as registry:
            yield (service, registry)

    return run


def app(seed: int = 1, layers: int = 2, size: int = 50_000) -> Built:
    chance = random.Random(seed)
    archives = [tar(folder("app"), E(f"app/{i}", chance.randbytes(size))) for i in range(layers)]
    return image(*archives, Entrypoint=["/app/0"], User="7:8")


def read(image: StoredImage, path: str) -> bytes:
    return next(
        place / path for place in reversed(image.layers) if (place / path).exists()
    ).read_bytes()


async def failure(call: Awaitable[Any]) -> RuntimeFailure:
    with pytest.raises(RuntimeFailure) as caught:
        await call
    return caught.value


async def test_a_pull_brings_the_image_once(run_harness: ContextFactory) -> None:
    async with run_harness() as (service, registry):
        built = app()
        registry.add("team/app:1", built)
        name = f"{registry.host}/team/app:1"
        news: list[PullProgress] = []
        found = await service.pull(name, None, "linux", progress=news.append)
        assert (found.id, found.manifest, found.tags) == (built.id, built.digest, (name,))
        assert found.digests == (f"{registry.host}/team/app@{built.digest}",)
        assert found.config["config"]["Entrypoint"] == ["/app/0"]
        assert found.size == len(built.manifest) + len(built.config) + sum(map(len, built.layers))
        assert (
            len(found.layers) == 2
            and read(found, "app/1") == random.Random(1).randbytes(100_000)[50_000:]
        )
        for other in (name, found.digests[0], built.id):
            assert service.find(other, "linux") == found
        assert service.find(built.id[7:], "windows", 17763) == found  # by id, for whom it may be
        assert service.find(name, "windows", 17763) is None
        steps = [event.step for event in news]
        assert steps[0] == "resolved" and steps[-1] == "done" and steps.count("extracted") == 2
        before = len(registry.requests)
        assert await service.pull(name, None, "linux") == found
        assert [r.method for r in registry.requests[before:]] == ["HEAD"]


async def test_equal_pulls_share_a_download_and_three_layers_are_pulled_at_a_time(
    run_harness: ContextFactory,
) -> None:
    async with run_harness() as (service, registry):
        built = app(layers=7, size=100)
        registry.add("app:1", built)
        name = f"{registry.host}/app:1"
        first, second = await asyncio.gather(
            service.pull(name, None, "linux"), service.pull(name, None, "linux")
        )
        assert first == second
        blobs = [r.path for r in registry.requests if "/blobs/" in r.path]
        assert len(blobs) == len(set(blobs)) == 8
        assert registry.most_at_once <= 3


async def test_two_processes_share_the_work(run_harness: ContextFactory, tmp_path: Path) -> None:
    async with run_harness() as (service, registry):
        registry.add("app:1", app(layers=4))
        name = f"{registry.host}/app:1"
        # its locks are as strange to the first as another process's
        other = ImageService(tmp_path / "images")
        found, again = await asyncio.gather(
            service.pull(name, None, "linux"), other.pull(name, None, "linux")
        )
        assert found.id == again.id
        layers = [r.path for r in registry.requests if "/blobs/" in r.path]
        counts = [layers.count(path) for path in set(layers)]
        assert sorted(counts)[:4] == [1, 1, 1, 1]  # the layers; a configuration may come twice


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("seed", range(6))
async def test_cuts_at_random_end_in_the_right_bytes(
    run_harness: ContextFactory, seed: int, ranges: bool
) -> None:
    chance = random.Random(seed)
    left = {"cuts": 25}

    def cut(path: str, size: int) -> int | None:
        if left["cuts"] and "/v2/" in path and chance.random() < 0.8:
            left["cuts"] -= 1
            return chance.randrange(size)
        return None

    async with run_harness(ranges=ranges, cut=cut) as (service, registry):
        built = app(seed, layers=3, size=chance.randrange(1000, 300_000))
        registry.add("app:1", built)
        for _ in range(30):  # a kubelet tries again
            try:
                found = await service.pull(f"{registry.host}/app:1", None, "linux")
                break
            except RuntimeFailure:
                continue
        for layer in built.layers:
            assert service.store.content.read(digest_of(layer)) == layer
        assert len(found.layers) == 3
        if ranges:
            assert any("range" in r.headers for r in registry.requests)


async def test_a_download_continues_where_an_earlier_process_was_killed(
    run_harness: ContextFactory,
) -> None:
    async with run_harness() as (service, registry):
        built = app(layers=2)
        registry.add("app:1", built)
        good, bad = built.layers
        service.store.content.part(digest_of(good)).write_bytes(good[:777])
        # the disk has lost what was not synced
        service.store.content.part(digest_of(bad)).write_bytes(b"x" * 777)
        await service.pull(f"{registry.host}/app:1", None, "linux")
        assert service.store.content.read(digest_of(good)) == good
        assert service.store.content.read(digest_of(bad)) == bad
        starts = {
            r.path.rpartition(":")[2]: r.headers.get("range")
            for r in registry.requests
            if "/blobs/" in r.path
        }
        assert starts[digest_of(good)[7:]] == "bytes=777-"
        assert starts[digest_of(bad)[7:]] is None  # the last request was for all of it


async def test_wrong_bytes_are_refused_and_leave_nothing(run_harness: ContextFactory) -> None:
    async with run_harness() as (service, registry):
        built = app(layers=1)
        registry.add("app:1", built)
        digest = digest_of(built.layers[0])
        registry.blobs[digest] = bytes(len(built.layers[0]))
        problem = await failure(service.pull(f"{registry.host}/app:1", None, "linux"))
        wrong = digest_of(registry.blobs[digest])
        assert problem.description.endswith(
            f'failed commit on ref "layer-{digest}": unexpected commit digest {wrong}, '
            f"expected {digest}: failed precondition"
        )
        assert not service.store.content.has(digest) and service.list() == []
        registry.blobs[digest] = built.layers[0] + b"more"
        problem = await failure(service.pull(f"{registry.host}/app:1", None, "linux"))
        assert "sends more than" in problem.description
        registry.blobs[digest] = built.layers[0]
        await service.pull(f"{registry.host}/app:1", None, "linux")


# ---- authorization ----


@pytest.mark.parametrize(
    ("server", "auth"),
    [
        ({"auth": "bearer"}, None),
        ({"auth": "bearer", "public": False}, AUTH),
        ({"auth": "bearer-post", "public": False}, AUTH),
        ({"auth": "basic"}, AUTH),
        ({"auth": "bearer"}, AUTH),
    ],
)
async def test_authorization(
    run_harness: ContextFactory, server: dict[str, Any], auth: AuthConfig | None
) -> None:
    async with run_harness(**server) as (service, registry):
        registry.add("team/app:1", app())
        await service.pull(f"{registry.host}/team/app:1", auth, "linux")
        # one token for all, POST or GET or both
        assert sum(r.path.startswith("/token") for r in registry.requests) <= 2


async def test_refusals(run_harness: ContextFactory) -> None:
    async with run_harness(auth="bearer", public=False) as (service, registry):
        registry.add("team/app:1", app())
        name = f"{registry.host}/team/app:1"
        start = (
            f'rpc error: code = Unknown desc = failed to pull and unpack image "{name}": '
            f'failed to resolve reference "{name}": '
        )
        assert str(await failure(service.pull(name, None, "linux"))) == start + (
            "pull access denied, repository does not exist or may require authorization: "
            "server message: insufficient_scope: "
            "authorization failed"
        )
        assert str(
            await failure(service.pull(name, AuthConfig("ann", "wrong"), "linux"))
        ) == start + (
            "failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized"
        )
        registry.auth = "basic"
        expected = start + "unexpected status code [manifests 1]: 401 Unauthorized"
        assert str(await failure(service.pull(name, None, "linux"))) == expected
        assert (
            str(await failure(service.pull(name, AuthConfig("ann", "wrong"), "linux"))) == expected
        )
        assert (
            str(
                await failure(
                    service.pull(name, AuthConfig(*USER, server="elsewhere.example"), "linux")
                )
            )
            == expected
        )
        registry.auth = ""
        for missing in ("team/app:2", "team/none:1", "team/app@sha256:" + "0" * 64):
            wanted = f"{registry.host}/{missing}"
            assert str(await failure(service.pull(wanted, None, "linux"))) == (
                f'rpc error: code = NotFound desc = failed to pull and unpack image "{wanted}": '
                f'failed to resolve reference "{wanted}": {wanted}: not found'
            )


async def test_no_listener(run_harness: ContextFactory) -> None:
    async with run_harness() as (service, registry):
        port = registry.port
        await registry.__aexit__()
        problem = await failure(service.pull(f"127.0.0.1:{port}/app:1", None, "linux"))
        assert problem.description.endswith(
            f'failed to do request: Head "http://127.0.0.1:{port}/v2/app/manifests/1": '
            f"dial tcp 127.0.0.1:{port}: connect: connection refused"
        )


async def test_blobs_elsewhere_get_no_credentials(run_harness: ContextFactory) -> None:
    async with run_harness(auth="basic") as (service, registry):
        built = app()
        async with RegistryServer() as cdn:
            cdn.add("team/app:1", built)
            registry.add("team/app:1", built)
            registry.redirect_to = f"http://{cdn.host}"
            await service.pull(f"{registry.host}/team/app:1", AUTH, "linux")
            assert len(cdn.requests) == 3
            assert not any("authorization" in r.headers for r in cdn.requests)
            assert all(
                "authorization" in r.headers for r in registry.requests if "/blobs/" in r.path
            )


async def test_an_expired_token_is_replaced(run_harness: ContextFactory) -> None:
    async with run_harness(auth="bearer") as (service, registry):
        registry.add("team/app:1", app())
        expired: list[str] = []

        def override(request: Request) -> tuple[int, dict[str, str], bytes] | None:
            if (
                "/blobs/" not in request.path
                or len(expired) > 0
                or "authorization" not in request.headers
            ):
                return None
            expired.append(request.path)
            header = (
                f'Bearer realm="http://{registry.host}/token",service="reg, of '
                'tests",error="invalid_token"'
            )
            return 401, {"WWW-Authenticate": header}, b""

        registry.override = override
        await service.pull(f"{registry.host}/team/app:1", None, "linux")
        assert expired


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_registry_in_trouble_gets_time(
    run_harness: ContextFactory, clock: Hasty, status: int
) -> None:
    async with run_harness() as (service, registry):
        registry.add("app:1", app())
        troubles: dict[str, int] = {}

        def override(request: Request) -> tuple[int, dict[str, str], bytes] | None:
            troubles[request.path] = troubles.get(request.path, 0) + 1
            return (status, {"Retry-After": "3"}, b"") if troubles[request.path] == 1 else None

        registry.override = override
        await service.pull(f"{registry.host}/app:1", None, "linux")
        assert 3.0 in clock.slept


async def test_registries_without_head_or_digest(run_harness: ContextFactory) -> None:
    async with run_harness(head_digest=False) as (service, registry):
        built = app()
        registry.add("app:1", built)
        registry.override = lambda request: (405, {}, b"") if request.method == "HEAD" else None
        assert (await service.pull(f"{registry.host}/app:1", None, "linux")).id == built.id


# ---- what a name stands for ----


def windows(build: str, **more: Any) -> Built:
    return image(tar(E("Files/app.exe", build.encode())), os="windows", version=build, **more)


def platform(system: str, version: str = "", architecture: str = "amd64") -> dict[str, Any]:
    return {"os": system, "architecture": architecture} | (
        {"os.version": version} if version else {}
    )


async def test_one_name_for_both_systems_and_several_builds(run_harness: ContextFactory) -> None:
    async with run_harness() as (service, registry):
        linux, old, new = app(), windows("10.0.17763.1697"), windows("10.0.20348.587")
        top = index(
            (linux, platform("linux")),
            (old, platform("windows", "10.0.17763.1697")),
            (new, platform("windows", "10.0.20348.587")),
        )
        registry.add("app:1", linux, old, new, index=top)
        name = f"{registry.host}/app:1"
        for system, build, wanted in (
            ("linux", 0, linux),
            ("windows", 17763, old),
            ("windows", 20348, new),
        ):
            assert service.find(name, system, build) is None
            found = await service.pull(name, None, system, build)
            assert found.id == wanted.id and found.build == build
            assert found.digests == (f"{registry.host}/app@{digest_of(top)}",)
            assert service.find(name, system, build) == found
        problem = await failure(service.pull(name, None, "windows", 19041))
        assert str(problem) == (
            f'rpc error: code = NotFound desc = failed to pull and unpack image "{name}": '
            "no match for platform in manifest: not found"
        )
        assert service.find(name, "windows", 19041) is None
        assert read(service.find(name, "windows", 17763), "app.exe") == b"10.0.17763.1697"  # type: ignore[arg-type]


async def test_entries_without_platform_are_judged_by_their_configuration(
    run_harness: ContextFactory,
) -> None:
    async with run_harness() as (service, registry):
        linux, other = app(), windows("10.0.17763.1")
        registry.add(
            "app:1", linux, other, index=index((linux, None), (other, None), kind=model.OCI_INDEX)
        )
        assert (await service.pull(f"{registry.host}/app:1", None, "windows", 17763)).id == other.id
        assert (await service.pull(f"{registry.host}/app:1", None, "linux")).id == linux.id


async def test_windows_own_layers_are_never_downloaded(run_harness: ContextFactory) -> None:
    steps = [
        {"created_by": "Apply image 10.0.17763.1"},
        {"created_by": "Install update 10.0.17763.9"},
        {"created_by": "cmd"},
    ]
    base = [
        tar(E("Files/Windows/big.dll", bytes(1000))),
        tar(E("Files/Windows/big.dll", bytes(2000))),
    ]
    own = tar(E("Files/app.exe", b"MZ"), E("Hives/System_Delta", b"regf"))

    async with run_harness() as (service, registry):
        marked = image(*base, own, os="windows", version="10.0.17763.9", foreign=2)
        recorded = image(*base, own, os="windows", version="10.0.17763.9", history=steps)
        for name, built in (("marked:1", marked), ("told:1", recorded)):
            registry.add(name, built)
            for layer in built.layers[:2]:
                registry.blobs.pop(digest_of(layer), None)
            found = await service.pull(f"{registry.host}/{name}", None, "windows", 17763)
            assert len(found.layers) == 1
            assert [path.name for path in found.layers[0].iterdir()] == ["app.exe"]
            assert found.size < 2000


async def test_manifests_that_are_refused(run_harness: ContextFactory) -> None:
    async with run_harness() as (service, registry):
        registry.manifests["old:1"] = orjson.dumps(
            {"schemaVersion": 1, "name": "old", "fsLayers": [], "mediaType": model.SCHEMA1[0]}
        )
        problem = await failure(service.pull(f"{registry.host}/old:1", None, "linux"))
        assert f'media type "{model.SCHEMA1[0]}" is no longer supported' in problem.description
        linux = app()
        registry.add("linux:1", linux)
        problem = await failure(service.pull(f"{registry.host}/linux:1", None, "windows", 17763))
        assert (
            "hcsshim::ImportLayer failed in Win32: The system cannot find the path specified. (0x3)"
            in str(problem)
        )
        document = orjson.loads(linux.manifest)
        document["layers"].pop()
        registry.add("less:1", Built(orjson.dumps(document), linux.config, linux.layers))
        problem = await failure(service.pull(f"{registry.host}/less:1", None, "linux"))
        assert "mismatched image rootfs and manifest layers" in problem.description
        registry.override = lambda request: (200, {"Docker-Content-Digest": "sha256:oops"}, b"")
        assert "in header not a valid digest" in str(
            await failure(service.pull(f"{registry.host}/x:1", None, "linux"))
        )


async def test_a_bad_layer_is_discarded_and_the_image_is_not_there(
    run_harness: ContextFactory,
) -> None:
    async with run_harness() as (service, registry):
        registry.add(
            "bad:1", image(tar(E("good", b"1")), tar(E("fine", b"1"), E("../../out", b"2")))
        )
        problem = await failure(service.pull(f"{registry.host}/bad:1", None, "linux"))
        assert (
            "failed to extract layer sha256:" in problem.description
            and "invalid path" in problem.description
        )
        assert service.list() == []
        # the good one
        assert len([p for p in (service.store.folder / "layers").iterdir() if p.is_dir()]) == 1
        assert service.store.sweep().freed > 0
        assert (
            list((service.store.folder / "layers").iterdir())
            == list(service.store.content.digests())
            == []
        )


# ---- TLS, mirrors, ends ----


async def test_tls_is_verified_unless_insecure(tmp_path: Path, clock: Hasty) -> None:
    ca = pki.make_ca("tests")
    pki.save_key_pair(ca, tmp_path / "ca.crt", tmp_path / "ca.key")
    pki.save_key_pair(
        pki.issue_server(ca, "registry", ["registry.test"], []),
        tmp_path / "tls.crt",
        tmp_path / "tls.key",
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")

    async with RegistryServer(context=context) as registry, RegistryServer() as plain:
        built = app()
        places = {"registry.test": registry.port, "plain.test": plain.port}

        async def connect(host: str, port: int) -> socket.socket:
            sock = socket.socket()
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", places[host]))
            return sock

        def service(**settings: Any) -> ImageService:
            return ImageService(
                tmp_path / "images",
                clock=clock,
                registries=Registries(connect=connect, **settings),
            )

        for server in (registry, plain):
            server.add("app:1", built)
        name = "registry.test/app:1"
        assert "x509" in str(await failure(service().pull(name, None, "linux")))
        trusted = service(authorities={"registry.test": (tmp_path / "ca.crt").read_bytes()})
        assert (await trusted.pull(name, None, "linux")).id == built.id
        await service(insecure=frozenset(("registry.test",))).pull(name, None, "linux")
        refused = await failure(service().pull("plain.test/app:1", None, "linux"))
        assert (
            'Head "https://plain.test/v2/app/manifests/1"' in refused.description
            and not plain.requests
        )
        await service(insecure=frozenset(("plain.test",))).pull("plain.test/app:1", None, "linux")
        assert plain.requests


async def test_mirrors_come_first_and_get_no_credentials(tmp_path: Path, clock: Hasty) -> None:
    built, other = app(1), app(2)
    async with RegistryServer() as mirror, RegistryServer(auth="basic") as registry:
        mirror.add("app:1", built)
        registry.add("app:1", built)
        registry.add("app:2", other)
        settings = Registries(mirrors={registry.host: (mirror.host,)})
        service = ImageService(tmp_path / "images", clock=clock, registries=settings)
        await service.pull(f"{registry.host}/app:1", AUTH, "linux")
        assert not registry.requests
        await service.pull(f"{registry.host}/app:2", AUTH, "linux")
        assert registry.requests and not any("authorization" in r.headers for r in mirror.requests)


async def test_a_pull_without_waiters_ends(run_harness: ContextFactory) -> None:
    async with run_harness() as (service, registry):
        registry.add("app:1", app())
        reached, name = asyncio.Event(), f"{registry.host}/app:1"

        def tell(news: PullProgress) -> None:
            reached.set()

        one = asyncio.create_task(service.pull(name, None, "linux", progress=tell))
        two = asyncio.create_task(service.pull(name, None, "linux"))
        await reached.wait()
        one.cancel()
        assert (await two).tags == (name,)  # another client still waited
        await service.remove(name, "linux")
        reached.clear()
        one = asyncio.create_task(service.pull(name, None, "linux", progress=tell))
        await reached.wait()
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)
        assert service.list() == []
        await service.pull(name, None, "linux")  # not the one that is just being cancelled


@pytest.mark.loop_budget(None)  # the test packs layers itself
async def test_a_process_killed_in_the_middle_leaves_a_store_that_works(
    tmp_path: Path, clock: Hasty
) -> None:
    """It is killed at some point of a pull, again and again; then one goes through."""
    code = textwrap.dedent("""
        import asyncio, sys
        from pathlib import Path
        from transom.runtime.images.service import ImageService
        print(asyncio.run(ImageService(Path(sys.argv[1])).pull(sys.argv[2], None, "linux")).id)
    """)

    async with RegistryServer() as registry:
        built = app(layers=3, size=2_000_000)
        registry.add("app:1", built)
        name = f"{registry.host}/app:1"
        for number in range(4):
            reached, last = asyncio.Event(), len(registry.requests) + 3 + number

            def watch(request: Request, reached: asyncio.Event = reached, last: int = last) -> None:
                if len(registry.requests) >= last:
                    reached.set()

            registry.override = watch
            victim = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, str(tmp_path), name
            )
            ends = [asyncio.create_task(reached.wait()), asyncio.create_task(victim.wait())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if victim.returncode is None:
                victim.kill()
            await asyncio.gather(ends[1])
            ends[0].cancel()
        service = ImageService(tmp_path, clock=clock)
        found = await service.pull(name, None, "linux")
        assert found.id == built.id and all(
            service.store.content.read(d) == data for d, data in built.blobs.items()
        )
        assert len(read(found, "app/2")) == 2_000_000
        service.store.sweep()
        assert not any(path.name.startswith(".") for path in (tmp_path / "layers").iterdir())
