"""What aggregated API servers read about clients and front proxies."""

from __future__ import annotations

from tests.apiserver.harness import start

from transom.apiserver.aggregation.trust import trust_contents

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


def test_nothing_is_published_without_authorities() -> None:
    assert trust_contents(b"", b"", ["X-Remote-Uid"]) == {}
    assert trust_contents(b"ca", b"") == {"client-ca-file": "ca"}


async def test_uid_headers_are_published_if_they_are_set() -> None:
    for headers, published in (((), None), (["X-Remote-Uid", "X-Id"], '["X-Remote-Uid","X-Id"]')):
        api = await start(release="1.33", ca=b"ca", front_proxy_ca=b"proxy", uid_headers=headers)
        data = (await api.ok("GET", CONFIG_MAP))["data"]
        assert data.get("requestheader-uid-headers") == published
        assert data["requestheader-username-headers"] == '["X-Remote-User"]'
