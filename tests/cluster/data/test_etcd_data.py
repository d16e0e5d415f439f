"""Snapshots of a stopped cluster in etcd, saved and restored over it; its own members run meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.harness import Api
from tests.etcd_process import require_etcd

from transom.apiserver.server import ServerOptions, build_api_server
from transom.cluster import config as configs
from transom.cluster import protection
from transom.cluster.config import ClusterConfig
from transom.cluster.data import snapshot_restore, snapshots
from transom.cluster.data.etcd_data import etcd_of_stopped_cluster
from transom.cluster.ha import layout
from transom.kit.clock import RealClock
from transom.kit.keyring import create_key_file
from transom.kit.user_errors import UserError

MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterConfig:
    """Two servers, which have one member of etcd, and Secrets are encrypted."""
    require_etcd()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    keys = tmp_path / "keys"
    create_key_file(keys)
    made = ClusterConfig(
        name="blue", no_nodes=True, servers=2, encrypt=True, encryption_key_file=str(keys)
    )
    made = layout.choose_layout(made)
    configs.save_config(made)
    return made


def _serve(config: ClusterConfig, use: Callable[[Api], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with etcd_of_stopped_cluster(config, protection.sealing(config)) as store:
            server = build_api_server(ServerOptions(store=store))
            await server.start()
            try:
                return await use(Api(server, RealClock()))
            finally:
                await server.stop()

    return asyncio.run(run())


async def _fill(api: Api) -> Any:
    secret = {"metadata": {"name": "s"}, "data": {"a": "eA=="}}
    await api.ok("POST", SECRETS, secret)
    await api.ok("POST", MAPS, {"metadata": {"name": "same"}})
    await api.ok("POST", MAPS, {"metadata": {"name": "changed"}, "data": {"a": "1"}})
    return await api.ok("POST", MAPS, {"metadata": {"name": "deleted"}, "data": {"a": "1"}})


async def _change(api: Api) -> Any:
    await api.ok("DELETE", f"{MAPS}/deleted")
    await api.ok("POST", MAPS, {"metadata": {"name": "new"}})
    body = {"metadata": {"name": "changed"}, "data": {"a": "2"}}
    return await api.ok("PUT", f"{MAPS}/changed", body)


async def _read(api: Api) -> Any:
    found = await api.ok("GET", MAPS)
    secret = await api.ok("GET", f"{SECRETS}/s")
    items = {item["metadata"]["name"]: item for item in found["items"]}
    return items, secret, int(found["metadata"]["resourceVersion"])


def _restore(path: Path, **options: Any) -> dict[str, Any]:
    return snapshot_restore.restore_snapshot(
        path,
        "",
        key_file=None,
        replace_existing=True,
        bump=1,
        report_progress=lambda _text: None,
        **options,
    )


@pytest.mark.timeout(180)
def test_a_snapshot_replaces_the_objects_in_etcd(config: ClusterConfig, tmp_path: Path) -> None:
    deleted = _serve(config, _fill)
    before, _, _ = _serve(config, _read)
    path = tmp_path / "first.snapshot"
    snapshots.save_snapshot(config, path, with_keys=False, report_progress=lambda _text: None)
    _serve(config, _change)
    _, _, changed = _serve(config, _read)

    report = _restore(path)
    found, secret, revision = _serve(config, _read)
    assert found.keys() == {"same", "changed", "deleted"} == before.keys()
    assert found["changed"]["data"] == {"a": "1"}
    assert found["deleted"]["metadata"]["uid"] == deleted["metadata"]["uid"]
    assert secret["data"] == {"a": "eA=="}
    # Revisions go on, and what did not change keeps its own.
    assert revision >= report["revision"] > changed
    assert int(found["deleted"]["metadata"]["resourceVersion"]) > changed
    assert found["same"] == before["same"]

    # The objects that were replaced are in a snapshot.
    _restore(Path(report["kept"]))
    found, _, _ = _serve(config, _read)
    assert found.keys() == {"same", "changed", "new"}
    assert found["changed"]["data"] == {"a": "2"}


@pytest.mark.timeout(120)
def test_keys_in_a_snapshot_do_not_replace_those_that_servers_share(
    config: ClusterConfig, tmp_path: Path
) -> None:
    path = tmp_path / "keys.snapshot"
    config.pki.mkdir(parents=True, exist_ok=True)
    (config.pki / "sa.key").write_text("key")
    snapshots.save_snapshot(config, path, with_keys=True, report_progress=lambda _text: None)
    with pytest.raises(UserError, match="the snapshot contains keys"):
        _restore(path)
