"""Health: the names of the checks, one by one and together."""

from __future__ import annotations

import pytest
from tests.apiserver.harness import start

from transom.machinery.releases import BUILDS, TABLES_SINCE, parse_release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.health_checks import health_check_names, readiness_check_names


@pytest.mark.parametrize(
    ("root", "more"),
    [("healthz", set()), ("livez", set()), ("readyz", {"informer-sync", "shutdown"})],
)
async def test_checks(root: str, more: set[str]) -> None:
    api = await start()

    async def text(path: str) -> tuple[int, str]:
        answer = await api.send("GET", path)
        assert isinstance(answer.body, bytes)
        return answer.status, answer.body.decode()

    status, recorded = await text(f"/{root}?verbose")
    *lines, last, _ = recorded.split("\n")
    assert (status, last) == (200, f"{root} check passed")
    checks = {line.removeprefix("[+]").removesuffix(" ok") for line in lines}
    assert (
        more
        | {
            "ping",
            "log",
            "etcd",
            "autoregister-completion",
            "poststarthook/start-apiextensions-controllers",
            "poststarthook/bootstrap-controller",
            "poststarthook/start-cluster-authentication-info-controller",
            "poststarthook/apiservice-openapi-controller",
            "poststarthook/priority-and-fairness-config-producer",
        }
        <= checks
    )
    assert ("shutdown" in checks) is ("shutdown" in more)
    for check in checks:
        assert await text(f"/{root}/{check}") == (200, "ok")
    assert (await text(f"/{root}/none"))[0] == 404
    assert "[+]ping excluded: ok" in (await text(f"/{root}?verbose&exclude=ping"))[1]


async def test_checks_of_a_current_release() -> None:
    api = await start(release="1.36")
    answer = await api.send("GET", "/readyz?verbose")
    assert isinstance(answer.body, bytes)
    lines = answer.body.decode().splitlines()
    assert lines[:6] == [
        "[+]ping ok",
        "[+]log ok",
        "[+]etcd ok",
        "[+]etcd-readiness ok",
        "[+]informer-sync ok",
        "[+]poststarthook/start-apiserver-admission-initializer ok",
    ]
    assert lines[-4:] == [
        "[+]poststarthook/apiservice-openapi-controller ok",
        "[+]poststarthook/apiservice-openapiv3-controller ok",
        "[+]shutdown ok",
        "readyz check passed",
    ]
    paths = (await api.ok("GET", "/"))["paths"]
    assert "/readyz/etcd-readiness" in paths
    assert "/livez/etcd-readiness" not in paths
    assert "/livez/loopback-serving-certificate" in paths


@pytest.mark.parametrize("name", BUILDS)
def test_no_check_has_two_places_in_one_release(name: str) -> None:
    release = parse_release(name)
    names = readiness_check_names(FeatureSet(release))
    assert len(names) == len(set(names))
    assert set(health_check_names(FeatureSet(release))) - {"loopback-serving-certificate"} < set(
        names
    )
    if release < TABLES_SINCE:
        assert "poststarthook/aggregator-reload-proxy-client-cert" in names
