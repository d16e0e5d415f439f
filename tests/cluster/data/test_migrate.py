"""`transom migrate`: every object arrives, and comes back with its revisions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.harness import Api
from tests.etcd_process import EtcdProcess, eventually, require_etcd

from transom.apiserver.server import ServerOptions, build_api_server
from transom.cluster import config as configs
from transom.cluster import daemon
from transom.cluster.config import ClusterConfig
from transom.cluster.data.etcd_data import etcd_of_stopped_cluster
from transom.cluster.data.etcd_store import make_etcd_store
from transom.cluster.data.migrate import OWN_ETCD, SQLITE, migrate_cluster
from transom.kit.clock import RealClock
from transom.kit.keyring import create_key_file
from transom.kit.user_errors import UserError
from transom.node.spec import demo_specs
from transom.store.api import Store
from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient, parse_etcd_address
from transom.store.sealing import NOTHING
from transom.store.sqlite import SqliteStore

MAPS = "/api/v1/namespaces/default/configmaps"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
DEFINITION = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
LISTED = (
    MAPS,
    WIDGETS,
    "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces/default/events",
    "/api/v1/services",
    "/api/v1/namespaces",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterConfig:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    made = ClusterConfig(name="moving", no_nodes=True)
    configs.save_config(made)
    return made


async def _serve(store: Store, release: str = "1.20") -> Api:
    server = build_api_server(ServerOptions(store=store, release=release))
    await server.start()
    return Api(server, RealClock())


async def _served(api: Api, path: str) -> bool:
    return (await api.call("GET", path))[0] == 200


async def _lists(api: Api) -> dict[str, list[Any]]:
    await eventually(lambda: _served(api, WIDGETS))
    return {path: (await api.ok("GET", path))["items"] for path in LISTED}


async def _fill(config: ClusterConfig) -> dict[str, list[Any]]:
    api = await _serve(SqliteStore(config.database))
    await api.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    await eventually(lambda: _served(api, WIDGETS))
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    await api.ok("POST", WIDGETS, {**widget, "spec": {"size": 3}})
    for number in range(200):
        await api.ok("POST", MAPS, {"metadata": {"name": f"m{number}"}, "data": {"n": f"{number}"}})
    await api.ok("DELETE", f"{MAPS}/m7")
    secret = {"metadata": {"name": "s"}, "data": {"a": "eA=="}}
    await api.ok("POST", "/api/v1/namespaces/default/secrets", secret)
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default"}}
    await api.ok("POST", "/api/v1/namespaces/default/events", event)
    found = await _lists(api)
    await api.server.stop()
    return found


async def _read(store: Store) -> dict[str, list[Any]]:
    api = await _serve(store)
    found = await _lists(api)
    await api.server.stop()
    return found


async def _stored(url: str, path: str) -> wire.EtcdKeyValue:
    client = EtcdClient(parse_etcd_address(url))
    key = f"{parse_etcd_address(url).prefix}/{path}".encode()
    found = await client.range(wire.range_request(key))
    await client.close()
    return found.kvs[0]


async def _read_own_etcd(config: ClusterConfig) -> dict[str, list[Any]]:
    async with etcd_of_stopped_cluster(config, NOTHING) as store:
        return await _read(store)


def _saved_config() -> ClusterConfig:
    found = configs.load_config("moving")
    assert found is not None
    return found


def versions_of(lists: dict[str, list[Any]]) -> list[int]:
    return [int(item["metadata"]["resourceVersion"]) for items in lists.values() for item in items]


def without_versions(lists: dict[str, list[Any]]) -> dict[str, list[Any]]:
    def plain(item: Any) -> Any:
        meta = {k: v for k, v in item["metadata"].items() if k != "resourceVersion"}
        return {**item, "metadata": meta}

    return {path: [plain(item) for item in items] for path, items in lists.items()}


def test_a_cluster_moves_to_etcd_and_back(etcd: EtcdProcess, config: ClusterConfig) -> None:
    before = asyncio.run(_fill(config))
    url = etcd.fresh_url()
    report = migrate_cluster(config, url, lambda _text: None)
    assert report["objects"]["configmaps"] == len(before[MAPS])
    assert report["objects"]["widgets.example.com"] == 1
    moved = configs.load_config("moving")
    assert moved is not None and moved.store == url
    assert not config.database.exists() and Path(report["kept"]).exists()
    inside = asyncio.run(_read(make_etcd_store(parse_etcd_address(url), NOTHING, "1.20")))
    assert without_versions(inside) == without_versions(before)
    # And back, with the revisions of etcd.
    back = migrate_cluster(moved, "sqlite", lambda _text: None)
    assert back["objects"]["configmaps"] == len(before[MAPS])
    again = configs.load_config("moving")
    assert again is not None and again.store == ""
    assert asyncio.run(_read(SqliteStore(config.database))) == inside
    with pytest.raises(UserError, match="there are objects at this prefix") as caught:
        migrate_cluster(again, url, lambda _text: None)
    assert f"etcdctl del --prefix {parse_etcd_address(url).prefix}/" in caught.value.hint
    assert asyncio.run(_read(SqliteStore(config.database))) == inside


def test_kinds_of_a_later_release_move_to_etcd_and_back(
    etcd: EtcdProcess, config: ClusterConfig
) -> None:
    """They have the keys of a kube-apiserver of that release. Objects are stored without their kind."""
    config = replace(config, release="1.36")
    configs.save_config(config)

    async def fill() -> list[Any]:
        api = await _serve(SqliteStore(config.database), "1.36")
        body = {"metadata": {"name": "gpu"}, "spec": {"selectors": []}}
        await api.ok("POST", DEVICE_CLASSES, body)
        found: list[Any] = (await api.ok("GET", ADDRESSES))["items"]
        await api.server.stop()
        return found

    async def read(store: Store) -> tuple[list[Any], list[Any]]:
        api = await _serve(store, "1.36")
        classes = (await api.ok("GET", DEVICE_CLASSES))["items"]
        addresses = (await api.ok("GET", ADDRESSES))["items"]
        await api.server.stop()
        return classes, addresses

    before = asyncio.run(fill())
    assert [one["metadata"]["name"] for one in before] == ["10.96.0.1"]
    url = etcd.fresh_url()
    migrate_cluster(config, url, lambda _text: None)
    stored = asyncio.run(_stored(url, "deviceclasses/gpu"))
    assert stored.value.startswith(b'{"kind":"DeviceClass","apiVersion":"resource.k8s.io/v1",')
    asyncio.run(_stored(url, "ipaddresses/10.96.0.1"))
    store = make_etcd_store(parse_etcd_address(url), NOTHING, "1.36")
    classes, addresses = asyncio.run(read(store))
    assert [one["metadata"]["name"] for one in classes] == ["gpu"]
    assert without_versions({"": addresses}) == without_versions({"": before})
    migrate_cluster(_saved_config(), SQLITE, lambda _text: None)
    assert asyncio.run(read(SqliteStore(config.database))) == (classes, addresses)


def test_a_cluster_moves_to_several_servers_and_back(config: ClusterConfig) -> None:
    require_etcd()
    before = asyncio.run(_fill(config))
    report = migrate_cluster(config, OWN_ETCD, lambda _text: None, 2)
    moved = _saved_config()
    assert (moved.servers, len(moved.server_ports), len(moved.etcd_ports)) == (2, 2, 2)
    assert report["servers"] == 2 and moved.store.startswith("etcds://127.0.0.1:")
    inside = asyncio.run(_read_own_etcd(moved))
    assert without_versions(inside) == without_versions(before)
    back = migrate_cluster(moved, SQLITE, lambda _text: None)
    again = _saved_config()
    assert (again.servers, again.store, again.server_ports, again.etcd_ports) == (0, "", (), ())
    assert Path(back["kept"]).is_dir() and not (config.state / "etcd").exists()
    assert asyncio.run(_read(SqliteStore(config.database))) == inside
    # Once more: the data of the former members is not in the way.
    migrate_cluster(again, OWN_ETCD, lambda _text: None, 2)
    once_more = asyncio.run(_read_own_etcd(_saved_config()))
    assert without_versions(once_more) == without_versions(before)


def test_revisions_in_etcd_are_higher_than_all_before(
    config: ClusterConfig, tmp_path: Path
) -> None:
    """A client that continues at a revision of the file must not wait until etcd reaches it."""
    require_etcd()
    before = asyncio.run(_fill(config))
    other = EtcdProcess(tmp_path / "etcd").start()  # at revision 1
    try:
        url = other.fresh_url()
        migrate_cluster(config, url, lambda _text: None)
        inside = asyncio.run(_read(make_etcd_store(parse_etcd_address(url), NOTHING, "1.20")))
    finally:
        other.kill()
    assert without_versions(inside) == without_versions(before)
    assert min(versions_of(inside)) > max(versions_of(before))


def test_an_object_and_its_quota_share_a_revision_in_etcd_and_not_in_a_file(
    etcd: EtcdProcess, config: ClusterConfig
) -> None:
    quotas = "/api/v1/namespaces/default/resourcequotas"
    url = etcd.fresh_url()

    async def fill() -> tuple[Any, Any]:
        api = await _serve(make_etcd_store(parse_etcd_address(url), NOTHING, "1.20"))
        hard = {"configmaps": "5"}
        quota = await api.ok("POST", quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
        quota["status"] = {"hard": hard, "used": {"configmaps": "0"}}
        await api.ok("PUT", f"{quotas}/q/status", quota)
        await api.ok("POST", MAPS, {"metadata": {"name": "a"}})
        found = await api.ok("GET", f"{MAPS}/a"), await api.ok("GET", f"{quotas}/q")
        await api.server.stop()
        return found

    async def read() -> tuple[Any, Any]:
        api = await _serve(SqliteStore(config.database))
        found = await api.ok("GET", f"{MAPS}/a"), await api.ok("GET", f"{quotas}/q")
        await api.server.stop()
        return found

    configs.save_config(replace(config, store=url))
    made, quota = asyncio.run(fill())
    assert made["metadata"]["resourceVersion"] == quota["metadata"]["resourceVersion"]
    migrate_cluster(_saved_config(), SQLITE, lambda _text: None)
    kept, moved = asyncio.run(read())
    assert kept == made
    assert int(moved["metadata"]["resourceVersion"]) > int(quota["metadata"]["resourceVersion"])
    assert without_versions({"": [moved]}) == without_versions({"": [quota]})


def test_several_servers_move_to_another_etcd(etcd: EtcdProcess, config: ClusterConfig) -> None:
    before = asyncio.run(_fill(config))
    migrate_cluster(config, OWN_ETCD, lambda _text: None, 2)
    url = etcd.fresh_url()
    report = migrate_cluster(_saved_config(), url, lambda _text: None)
    moved = _saved_config()
    assert (moved.servers, moved.store, moved.etcd_ports) == (2, url, ())
    assert len(moved.server_ports) == 2 and Path(report["kept"]).is_dir()
    inside = asyncio.run(_read(make_etcd_store(parse_etcd_address(url), NOTHING, "1.20")))
    assert without_versions(inside) == without_versions(before)


def test_more_servers_get_control_plane_nodes(config: ClusterConfig) -> None:
    require_etcd()
    config = replace(config, no_nodes=False)
    asyncio.run(_fill(config))
    configs.save_nodes(config, demo_specs(config, 1, 0, None, False))
    migrate_cluster(config, OWN_ETCD, lambda _text: None, 2)
    nodes = configs.load_nodes(config) or []
    assert [node.name for node in nodes] == ["control-plane", "linux-1", "control-plane-2"]
    assert sorted(node.number for node in nodes) == [1, 2, 3]


def test_values_in_etcd_have_kind_and_version_and_events_expire(
    etcd: EtcdProcess, config: ClusterConfig
) -> None:
    asyncio.run(_fill(config))
    url = etcd.fresh_url()
    migrate_cluster(config, url, lambda _text: None)
    widget = asyncio.run(_stored(url, "example.com/widgets/default/w"))
    assert widget.value.startswith(b'{"kind":"Widget","apiVersion":"example.com/v1","metadata":{')
    assert b"resourceVersion" not in widget.value
    assert asyncio.run(_stored(url, "events/default/e")).lease


def test_nothing_changes_when_it_is_not_possible(etcd: EtcdProcess, config: ClusterConfig) -> None:
    with pytest.raises(UserError, match="has no data yet"):
        migrate_cluster(config, etcd.fresh_url(), lambda _text: None)
    asyncio.run(_fill(config))
    with pytest.raises(UserError, match="already keeps"):
        migrate_cluster(config, "sqlite", lambda _text: None)
    with pytest.raises(UserError, match="cannot share a file"):
        migrate_cluster(config, SQLITE, lambda _text: None, 3)
    with pytest.raises(UserError, match="has no etcd of its own"):
        migrate_cluster(config, OWN_ETCD, lambda _text: None, 1)
    with pytest.raises(UserError, match="is not an address"):
        migrate_cluster(config, "http://127.0.0.1", lambda _text: None)
    lock = daemon.ClusterLock(config)
    try:
        with pytest.raises(UserError, match="is running"):
            migrate_cluster(config, etcd.fresh_url(), lambda _text: None)
    finally:
        lock.release()
    assert config.database.exists()


def test_secrets_are_sealed_in_etcd_too(
    etcd: EtcdProcess, config: ClusterConfig, tmp_path: Path
) -> None:
    asyncio.run(_fill(config))
    keys = tmp_path / "keys.yaml"
    create_key_file(keys)
    config = replace(config, encrypt=True, encryption_key_file=str(keys))
    configs.save_config(config)
    url = etcd.fresh_url()
    migrate_cluster(config, url, lambda _text: None)
    secret = asyncio.run(_stored(url, "secrets/default/s"))
    assert b"eA==" not in secret.value
    moved = configs.load_config("moving")
    assert moved is not None
    assert migrate_cluster(moved, "sqlite", lambda _text: None)["objects"]["secrets"] == 1
    assert b"eA==" not in config.database.read_bytes()
