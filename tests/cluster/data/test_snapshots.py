"""Snapshots: the file, saving and continuing, what verify finds, restoring as the same and as
another cluster.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from transom.apiserver.core.integrity import check_value
from transom.cluster import config as configs
from transom.cluster import daemon
from transom.cluster.config import ClusterConfig
from transom.cluster.data import snapshot_check, snapshot_restore, snapshots
from transom.cluster.data.snapshot_sources import read_stopped_cluster
from transom.cluster.pki import ensure_cluster_pki
from transom.kit import keyring
from transom.kit.keyring import KeyRing
from transom.kit.user_errors import UserError
from transom.store.api import RevisionCompacted
from transom.store.sealing import NOTHING, Sealing
from transom.store.snapshot_file import (
    SnapshotDamaged,
    SnapshotReader,
    SnapshotRecord,
    SnapshotWriter,
    pack_records,
    unpack_records,
)
from transom.store.sqlite import SqliteStore


def report_progress(_: str) -> None:
    return


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def with_store(
    config: ClusterConfig, body: Callable[[SqliteStore], Awaitable[Any]], sealing: Sealing = NOTHING
) -> Any:
    async def main() -> Any:
        store = SqliteStore(config.database, sealing=sealing)
        await store.start()
        try:
            return await body(store)
        finally:
            await store.close()

    return asyncio.run(main())


def obj(key: str, revision: int, **more: Any) -> bytes:
    _, *namespace, name = key.split("/")
    meta = {"name": name, "resourceVersion": str(revision)} | (
        {"namespace": namespace[0]} if namespace else {}
    )
    return orjson.dumps({"metadata": meta, **more})


TOKEN = {
    "type": "kubernetes.io/service-account-token",
    "data": {"token": "c2lnbmVk", "namespace": "ZGVmYXVsdA=="},
}


def cluster(name: str = "blue", *, encrypt: bool = False) -> ClusterConfig:
    config = ClusterConfig(name=name, port=7443, kubeconfig="/somewhere", no_nodes=True)
    config.state.mkdir(parents=True)
    sealing = NOTHING
    if encrypt:
        path = config.state / "encryption.keys"
        keyring.create_key_file(path)
        config = ClusterConfig(
            name=name, port=7443, no_nodes=True, encrypt=True, encryption_key_file=str(path)
        )
        sealing = Sealing(keyring.load_key_file(path), ("secrets",))
    ensure_cluster_pki(config)
    configs.save_config(config)

    async def fill(store: SqliteStore) -> None:
        for n in range(600):
            key = f"configmaps/default/{n}"
            await store.put(key, lambda at, key=key: obj(key, at, data={"x": "y" * 100}))  # type: ignore[misc]
        await store.put("nodes/n1", lambda at: obj("nodes/n1", at))
        await store.put(
            "secrets/default/token", lambda at: obj("secrets/default/token", at, **TOKEN)
        )
        await store.delete("configmaps/default/0")

    with_store(config, fill, sealing)
    return config


def contents(
    config: ClusterConfig, sealing: Sealing = NOTHING
) -> dict[str, tuple[bytes, int, int]]:
    async def read(store: SqliteStore) -> dict[str, tuple[bytes, int, int]]:
        return {r.key: (r.value, r.create_revision, r.mod_revision) for r in store.list("").records}

    found: dict[str, tuple[bytes, int, int]] = with_store(config, read, sealing)
    return found


def test_a_snapshot_of_a_stopped_cluster_is_what_the_cluster_holds(home: Path) -> None:
    config = cluster()
    saved = snapshots.save_snapshot(
        config, home / "a.snapshot", with_keys=False, report_progress=report_progress
    )
    assert (saved["records"], saved["revision"], saved["cluster"]) == (601, 604, "blue")
    assert saved["counts"] == {"configmaps": 599, "nodes": 1, "secrets": 1}
    assert (home / "a.snapshot").stat().st_mode & 0o777 == 0o600 and not (
        home / "a.snapshot.partial"
    ).exists()
    assert (
        snapshot_check.verify_snapshot(home / "a.snapshot", None, report_progress)["sha256"]
        == saved["sha256"]
    )
    reader = SnapshotReader(home / "a.snapshot")
    assert {r.key: (r.value, r.create_revision, r.mod_revision) for r in reader} == contents(config)
    assert set(reader.files) == {"cluster.json"}


def test_restored_under_another_name_it_is_another_cluster_with_the_same_objects(
    home: Path,
) -> None:
    config = cluster()
    snapshots.save_snapshot(
        config, home / "a.snapshot", with_keys=False, report_progress=report_progress
    )
    found = snapshot_restore.restore_snapshot(
        home / "a.snapshot",
        "green",
        key_file=None,
        replace_existing=False,
        bump=1000,
        report_progress=report_progress,
    )
    assert (found["cluster"], found["records"], found["revision"], found["tokensReissued"]) == (
        "green",
        601,
        1604,
        1,
    )
    green = configs.load_config("green")
    assert green is not None and (green.name, green.port, green.kubeconfig, green.no_nodes) == (
        "green",
        0,
        "",
        True,
    )
    before, after = contents(config), contents(green)
    token = orjson.loads(after.pop("secrets/default/token")[0])
    del before["secrets/default/token"]
    assert before == after
    assert token["data"] == {"namespace": "ZGVmYXVsdA=="}  # the token controller fills in the rest
    assert not green.pki.exists()  # made at the first start

    async def old_clients(store: SqliteStore) -> None:
        assert (store.revision, store.compacted) == (1604, 1604)
        with pytest.raises(RevisionCompacted):
            store.watch("configmaps/", 604, lambda _: None)
        assert (await store.put("nodes/n2", lambda at: b"{}")).mod_revision == 1605

    with_store(green, old_clients)
    with pytest.raises(UserError, match="exists"):
        snapshot_restore.restore_snapshot(
            home / "a.snapshot",
            "green",
            key_file=None,
            replace_existing=False,
            bump=1,
            report_progress=report_progress,
        )


def test_restored_over_its_cluster_it_keeps_the_old_data_and_goes_beyond_its_revision(
    home: Path,
) -> None:
    config = cluster()
    snapshots.save_snapshot(
        config, home / "a.snapshot", with_keys=True, report_progress=report_progress
    )
    saved = contents(config)

    async def more(store: SqliteStore) -> None:
        for _ in range(50):
            await store.put("nodes/n1", lambda at: obj("nodes/n1", at))

    with_store(config, more)
    key = (config.pki / "sa.key").read_bytes()
    (config.pki / "sa.key").write_bytes(b"another")
    found = snapshot_restore.restore_snapshot(
        home / "a.snapshot",
        "",
        key_file=None,
        replace_existing=True,
        bump=10,
        report_progress=report_progress,
    )
    assert (
        found["revision"] == 664 and found["tokensReissued"] == 0 and Path(found["kept"]).exists()
    )
    assert contents(config) == saved
    assert (config.pki / "sa.key").read_bytes() == key and (
        config.pki / "sa.key"
    ).stat().st_mode & 0o777 == 0o600
    assert configs.load_config("blue") == config  # port and kubeconfig stay
    assert len(list(config.state.glob("pki.before-restore-*"))) == 1


def test_a_running_cluster_is_not_restored_over(home: Path) -> None:
    config = cluster()
    snapshots.save_snapshot(
        config, home / "a.snapshot", with_keys=False, report_progress=report_progress
    )
    lock = daemon.ClusterLock(config)
    with pytest.raises(UserError, match="already running"):
        snapshot_restore.restore_snapshot(
            home / "a.snapshot",
            "",
            key_file=None,
            replace_existing=True,
            bump=10,
            report_progress=report_progress,
        )
    lock.release()


@pytest.mark.parametrize("with_keys", [False, True])
def test_what_is_encrypted_stays_encrypted(home: Path, with_keys: bool) -> None:
    config = cluster(encrypt=True)
    snapshots.save_snapshot(
        config, home / "a.snapshot", with_keys=with_keys, report_progress=report_progress
    )
    data = (home / "a.snapshot").read_bytes()
    assert b"c2lnbmVk" not in data
    moved = home / "keys"
    Path(config.encryption_key_file).rename(moved)
    found = snapshot_check.verify_snapshot(
        home / "a.snapshot", None if with_keys else moved, report_progress
    )
    assert found["encryptedNotDecoded"] == 0
    if not with_keys:
        assert (
            snapshot_check.verify_snapshot(home / "a.snapshot", None, report_progress)[
                "encryptedNotDecoded"
            ]
            == 1
        )
        with pytest.raises(UserError, match="encrypted"):
            snapshot_restore.restore_snapshot(
                home / "a.snapshot",
                "green",
                key_file=None,
                replace_existing=False,
                bump=1,
                report_progress=report_progress,
            )
        assert configs.load_config("green") is None
    snapshot_restore.restore_snapshot(
        home / "a.snapshot",
        "green",
        key_file=None if with_keys else moved,
        replace_existing=False,
        bump=1,
        report_progress=report_progress,
    )
    green = configs.load_config("green")
    assert green is not None and green.encrypt
    ring = keyring.load_key_file(Path(green.encryption_key_file))
    assert (
        b'"type":"kubernetes.io/service'
        in contents(green, Sealing(ring, ("secrets",)))["secrets/default/token"][0]
    )


def test_every_changed_byte_and_every_cut_is_found(home: Path) -> None:
    config = cluster()
    path = home / "a.snapshot"
    snapshots.save_snapshot(config, path, with_keys=True, report_progress=report_progress)
    data = path.read_bytes()
    rng = random.Random(3)
    for _ in range(150):
        changed = bytearray(data)
        at = rng.randrange(len(data))
        changed[at] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(UserError) as refused:
            snapshot_check.verify_snapshot(path, None, report_progress)
        assert refused.value.code == snapshot_check.EXIT_DAMAGED, at
    for _ in range(30):
        path.write_bytes(data[: rng.randrange(len(data))])
        with pytest.raises(UserError, match="damaged"):
            snapshot_restore.restore_snapshot(
                path,
                "green",
                key_file=None,
                replace_existing=False,
                bump=1,
                report_progress=report_progress,
            )
        assert configs.load_config("green") is None
    for more in (b"x", data[-8:], data):
        path.write_bytes(data + more)
        with pytest.raises(UserError, match="something follows its end"):
            snapshot_check.verify_snapshot(path, None, report_progress)


class Interrupted:
    """A cluster that goes away after some blocks."""

    def __init__(self, source: snapshots.SnapshotSource, blocks: int) -> None:
        self._source = source
        self.left = blocks
        self.begun = 0

    def begin(self) -> dict[str, Any]:
        self.begun += 1
        return self._source.begin() | {"id": "one"}

    def block(self, name: str, start: int) -> bytes | None:
        self.left -= 1
        if self.left < 0:
            raise UserError("does not answer")
        return self._source.block(name, start)

    def end(self, name: str) -> None:
        self._source.end(name)


@pytest.mark.parametrize("torn", [0, 5, 4000])
def test_an_interrupted_save_continues_where_it_stopped(home: Path, torn: int) -> None:
    config = cluster()
    source = Interrupted(read_stopped_cluster(config), 2)
    target = home / "a.snapshot"
    with pytest.raises(UserError, match="does not answer"):
        snapshots.write_snapshot(
            config, source, target, with_keys=False, report_progress=report_progress
        )
    assert not target.exists()
    partial = home / "a.snapshot.partial"
    if torn:
        partial.write_bytes(partial.read_bytes()[:-torn])
    source.left = 100
    printed: list[str] = []
    saved = snapshots.write_snapshot(
        config, source, target, with_keys=False, report_progress=printed.append
    )
    assert source.begun == 1 and printed and saved["records"] == 601
    assert snapshot_check.verify_snapshot(target, None, report_progress)["records"] == 601
    assert {record.key for record in SnapshotReader(target)} == set(contents(config))


def test_a_save_that_cannot_go_on_begins_again(home: Path) -> None:
    config = cluster()
    source = Interrupted(read_stopped_cluster(config), 1)
    with pytest.raises(UserError):
        snapshots.write_snapshot(
            config, source, home / "a.snapshot", with_keys=False, report_progress=report_progress
        )
    assert (
        snapshots.save_snapshot(
            config, home / "a.snapshot", with_keys=False, report_progress=report_progress
        )["records"]
        == 601
    )
    assert (
        snapshot_check.verify_snapshot(home / "a.snapshot", None, report_progress)["records"] == 601
    )


def test_list_names_what_is_there_and_what_is_damaged(home: Path) -> None:
    config = cluster()
    snapshots.save_snapshot(
        config,
        snapshots.default_snapshot_file("blue"),
        with_keys=False,
        report_progress=report_progress,
    )
    (snapshots.snapshots_folder() / "bad.snapshot").write_bytes(b"TRANSOM-SNAPSHOT 2\n....")
    rows = snapshots.list_snapshots()
    assert [("problem" in row, row.get("cluster")) for row in rows] == [
        (True, None),
        (False, "blue"),
    ]
    assert "newer release" in rows[0]["problem"]


def test_objects_that_do_not_decode_are_found(home: Path) -> None:
    writer = SnapshotWriter(
        home / "a.snapshot", {"cluster": "x", "revision": 3, "records": 1, "id": ""}
    )
    writer.add_records(pack_records([SnapshotRecord("pods/default/a", b"{", 3, 3, None)]))
    writer.finish()
    with pytest.raises(UserError, match="pods/default/a: the value is not JSON") as refused:
        snapshot_check.verify_snapshot(home / "a.snapshot", None, report_progress)
    assert refused.value.code == 3


RECORD = SnapshotRecord("secrets/default/a", b'{"metadata":{"name":"a"}}', 3, 3, None)
HEADER = {"cluster": "x", "revision": 9, "records": 1, "id": ""}


def foreign_snapshot(path: Path, records: list[SnapshotRecord], **more: Any) -> Path:
    """A file with valid checksums and contents that `save` does not write."""
    writer = SnapshotWriter(path, HEADER | more.pop("header", {}))
    for name, contents in ({"cluster.json": {"name": "x"}} | more).items():
        writer.add_file(name, 0o600, orjson.dumps(contents))
    if records:
        writer.add_records(pack_records(records))
    writer.finish()
    return path


FOREIGN: dict[str, tuple[list[SnapshotRecord], dict[str, Any], str]] = {
    "revision": ([], {"header": {"revision": {}}}, "damaged: its revision is not a number"),
    "cluster": ([], {"header": {"cluster": 5}}, "damaged: the name of its cluster"),
    "file": ([], {"pki/a\0b": 1}, "damaged: the name of a file"),
    "long file": ([], {"pki/" + "x" * 300: 1}, "damaged: the name of a file"),
    "key": ([RECORD._replace(key="")], {}, "damaged: a record has no proper key"),
    "late": ([RECORD._replace(mod_revision=10)], {}, "damaged: the revision of secrets/"),
    "no revision": ([RECORD._replace(create_revision=0)], {}, "damaged: the revision of secrets/"),
    "same key": ([RECORD, RECORD], {}, "damaged: secrets/default/a is there twice"),
    "network": ([], {"cluster.json": {"network": 5}}, "no usable configuration"),
    "gates": ([], {"cluster.json": {"feature_gates": 5}}, "no usable configuration"),
    "gate": ([], {"cluster.json": {"feature_gates": [5]}}, "feature_gates has items other"),
    "bind": ([], {"cluster.json": {"bind": ["::"]}}, "bind is not a str"),
    "ports": ([], {"cluster.json": {"node_ports": ["a", 2]}}, "node_ports has items other"),
    "port range": ([], {"cluster.json": {"node_ports": [5, 1]}}, "is not a range of ports"),
    "port": ([], {"cluster.json": {"port": 99999999}}, "99999999 is not a port"),
    "engine": ([], {"cluster.json": {"engine": "zz"}}, "engine 'zz' is none of sim"),
    "list": ([], {"cluster.json": []}, "no usable configuration"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_snapshot_with_odd_contents_is_refused_with_the_reason(home: Path, name: str) -> None:
    records, more, message = FOREIGN[name]
    path = foreign_snapshot(home / "a.snapshot", records, **more)
    with pytest.raises(UserError, match=message):
        snapshot_restore.restore_snapshot(
            path, "new", key_file=None, replace_existing=False, bump=1, report_progress=print
        )
    assert configs.load_config("new") is None


def test_changes_of_one_transaction_of_etcd_are_restored_with_distinct_revisions(
    home: Path,
) -> None:
    def record(name: str, created: int) -> SnapshotRecord:
        value = {"metadata": {"name": name, "namespace": "default", "resourceVersion": "3"}}
        return SnapshotRecord(f"configmaps/default/{name}", orjson.dumps(value), created, 3, None)

    path = foreign_snapshot(home / "a.snapshot", [record("quota", 2), record("z", 3)])
    snapshot_restore.restore_snapshot(
        path, "new", key_file=None, replace_existing=False, bump=0, report_progress=print
    )
    restored = configs.load_config("new")
    assert restored is not None
    found = {
        (key.rpartition("/")[2], created, modified, check_value(key, modified, value))
        for key, (value, created, modified) in contents(restored).items()
    }
    assert found == {("z", 3, 3, ""), ("quota", 2, 10, "")}


@pytest.mark.parametrize("value", [b"\xff" * 20, b"[]", b'{"data":5}', b"5"])
def test_a_secret_that_does_not_decode_does_not_prevent_a_restore(home: Path, value: bytes) -> None:
    fine = RECORD._replace(key="secrets/default/b", mod_revision=4)
    path = foreign_snapshot(home / "a.snapshot", [RECORD._replace(value=value), fine])
    report = snapshot_restore.restore_snapshot(
        path, "new", key_file=None, replace_existing=False, bump=1, report_progress=print
    )
    assert report["records"] == 2
    restored = configs.load_config("new")
    assert restored is not None
    assert fine.key in contents(restored)


def test_the_restored_cluster_lives_in_its_own_folder(home: Path) -> None:
    path = foreign_snapshot(
        home / "a.snapshot", [RECORD], **{"cluster.json": {"home": str(home / "elsewhere")}}
    )
    snapshot_restore.restore_snapshot(
        path, "new", key_file=None, replace_existing=False, bump=1, report_progress=print
    )
    restored = configs.load_config("new")
    assert restored is not None
    assert restored.state == configs.clusters_dir() / "new"


def test_records_are_bound_to_their_key() -> None:
    block = pack_records([SnapshotRecord("pods/a", b"one", 2, 3, 5.0)])
    with pytest.raises(SnapshotDamaged, match="pods/b"):
        list(unpack_records(block.replace(b"pods/a", b"pods/b")))


def test_an_old_file_is_saved_before_it_is_upgraded(home: Path) -> None:
    from tests.store.test_integrity import OLD_ROWS, first_format

    config = ClusterConfig(name="old", no_nodes=True)
    config.state.mkdir(parents=True)
    configs.save_config(config)
    first_format(config.database, OLD_ROWS)

    async def start() -> None:
        store = SqliteStore(config.database, before_upgrade=snapshots.before_upgrade(config))
        await store.start()
        await store.close()

    asyncio.run(start())
    (row,) = snapshots.list_snapshots()
    assert (row["cluster"], row["revision"], row["records"]) == (
        "old",
        7,
        3,
    ) and "before-upgrade-of-format-1" in row["file"]
    assert json.loads(saved_configuration(Path(row["file"])))["name"] == "old"


def saved_configuration(path: Path) -> bytes:
    reader = SnapshotReader(path)
    list(reader)
    return reader.files["cluster.json"][1]


def test_a_ring_in_a_snapshot_is_the_ring_of_the_file(tmp_path: Path) -> None:
    keyring.create_key_file(tmp_path / "keys")
    ring = keyring.parse_key_file((tmp_path / "keys").read_bytes())
    assert isinstance(ring, KeyRing)
    assert keyring.load_key_file(tmp_path / "keys").unseal("a", ring.seal("a", b"x")) == b"x"


def test_a_snapshot_has_no_password_of_the_etcd(home: Path) -> None:
    configs.save_config(ClusterConfig(name="blue", store="etcds://me:secret@a,b:1/p?ca=/ca"))
    config = configs.load_config("blue")
    assert config is not None
    files = {name: contents for name, _, contents in snapshots._files(config, with_keys=False)}
    assert b"secret" not in files["cluster.json"]
    assert orjson.loads(files["cluster.json"])["store"] == "etcds://me@a,b:1/p?ca=/ca"
