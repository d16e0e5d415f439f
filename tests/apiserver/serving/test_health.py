"""Health: the names of the checks, one by one and together."""

from __future__ import annotations

import pytest
from tests.apiserver.harness import start


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
