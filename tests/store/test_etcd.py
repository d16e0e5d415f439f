"""The store on a real etcd: other writers, lost connections, restarts, compactions, backups."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.etcd_process import EtcdProcess, Forwarder, eventually, require_etcd

from transom.kit.clock import RealClock
from transom.kit.keyring import KeyRing
from transom.kit.pki import issue_client, issue_server, make_ca, save_key_pair
from transom.kit.rpc import RpcError
from transom.store.api import (
    AlsoPut,
    PreconditionFailed,
    StoreError,
    StoreEvent,
    StoreRecord,
    StoreUnavailable,
)
from transom.store.etcd import wire
from transom.store.etcd.client import (
    EtcdAddressError,
    EtcdClient,
    address_without_password,
    parse_etcd_address,
)
from transom.store.etcd.compaction import EtcdCompactor
from transom.store.etcd.store import EtcdStore
from transom.store.sealing import Sealing


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """One that the test may kill."""
    require_etcd()
    member = EtcdProcess(tmp_path / "etcd").start()
    yield member
    member.kill()


def make_store(url: str, **options: Any) -> EtcdStore:
    address = parse_etcd_address(url)
    return EtcdStore(EtcdClient(address), address.prefix, **options)


async def started(url: str, **options: Any) -> EtcdStore:
    store = make_store(url, **options)
    await store.start()
    return store


def put(
    store: EtcdStore, key: str, value: bytes = b"x", **more: Any
) -> asyncio.Future[StoreRecord]:
    return store.put(key, lambda revision: value, **more)


class SeenEvents(list[StoreEvent]):
    """Events of a watch, and a way to wait for them."""

    def __init__(self, store: EtcdStore, prefix: str) -> None:
        super().__init__()
        self._changed = asyncio.Event()
        store.watch(prefix, store.revision, self._add)

    def _add(self, events: Sequence[StoreEvent]) -> None:
        self.extend(events)
        self._changed.set()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


async def has_problem(store: EtcdStore, expected: bool) -> bool:
    return bool(store.health().problem) is expected


async def until_written(store: EtcdStore, key: str) -> StoreRecord:
    """Retries as clients do."""
    while True:
        try:
            return await put(store, key)
        except StoreUnavailable:
            await asyncio.sleep(0.05)


# ---- several writers ----


async def test_two_stores_see_each_others_writes_and_detect_conflicts(etcd: EtcdProcess) -> None:
    url = etcd.fresh_url()
    first, second = await started(url), await started(url)
    seen = SeenEvents(second, "pods/")
    written = await put(first, "pods/a", b"1", expected=0)
    await second.sync()
    found = second.get("pods/a")
    assert found is not None
    assert (found.value, found.mod_revision) == (b"1", written.mod_revision)
    assert [event.key for event in seen] == ["pods/a"]
    results = await asyncio.gather(
        *(put(store, "pods/a", b"2", expected=written.mod_revision) for store in (first, second)),
        return_exceptions=True,
    )
    refused = [one for one in results if isinstance(one, PreconditionFailed)]
    [accepted] = [one for one in results if isinstance(one, StoreRecord)]
    # The one that lost knows the newer record already.
    assert len(refused) == 1 and refused[0].current is not None
    assert refused[0].current.mod_revision == accepted.mod_revision
    await first.close()
    await second.close()


async def test_a_counter_that_two_stores_increment_loses_no_update(etcd: EtcdProcess) -> None:
    url = etcd.fresh_url()
    stores = [await started(url), await started(url)]
    await put(stores[0], "counters/c", b"0")
    await stores[1].sync()

    async def increment(store: EtcdStore) -> None:
        while True:
            current = store.latest("counters/c")
            assert current is not None
            value = b"%d" % (int(current.value) + 1)
            try:
                await put(store, "counters/c", value, expected=current.mod_revision)
                return
            except PreconditionFailed as refused:
                assert refused.current is not None
                assert refused.current.mod_revision > current.mod_revision

    await asyncio.gather(*(increment(store) for store in stores for _ in range(10)))
    for store in stores:
        await store.sync()
        found = store.get("counters/c")
        assert found is not None and found.value == b"20"
        await store.close()


async def test_writes_with_one_lock_fail_unless_everything_before_is_visible(
    etcd: EtcdProcess,
) -> None:
    url = etcd.fresh_url()
    first, second = await started(url), await started(url)
    await put(first, "services/a", lock="range")
    await second.sync()
    results = await asyncio.gather(
        put(first, "services/b", expected=0, lock="range"),
        put(second, "services/c", expected=0, lock="range"),
        return_exceptions=True,
    )
    refused = [one for one in results if isinstance(one, PreconditionFailed)]
    assert len(refused) == 1 and refused[0].current is None
    for store in (first, second):
        assert store.count("services/") == 2
    await put(second, "services/d", lock="range")
    await first.close()
    await second.close()


async def test_a_write_and_what_goes_along_happen_together_or_not_at_all(etcd: EtcdProcess) -> None:
    url = etcd.fresh_url()
    first, second = await started(url), await started(url)
    quota = await put(first, "quotas/q", b"0")
    await second.sync()

    def charge(record: StoreRecord, value: bytes) -> list[AlsoPut]:
        return [AlsoPut(record.key, lambda _revision: value, record.mod_revision)]

    await put(second, "quotas/q", b"recounted")  # `first` may not have seen it
    with pytest.raises(PreconditionFailed) as refused:
        await put(first, "pods/a", expected=0, also=charge(quota, b"1"))
    assert refused.value.current is None
    newest = first.get("quotas/q")
    assert newest is not None and newest.value == b"recounted"
    made = await put(first, "pods/a", expected=0, also=charge(newest, b"1"))
    await second.sync()
    for store in (first, second):
        charged = store.get("quotas/q")
        assert charged is not None and charged.value == b"1"
        assert charged.mod_revision == made.mod_revision
        await store.close()


async def test_keys_outside_of_the_prefix_do_not_keep_readers_waiting(etcd: EtcdProcess) -> None:
    store = await started(etcd.fresh_url())
    other = await started(etcd.fresh_url())
    for number in range(3):
        await put(other, f"pods/{number}")
    await store.sync()
    assert store.revision >= other.revision
    assert store.count("") == 0
    await store.close()
    await other.close()


async def test_a_restarted_store_has_everything_at_one_revision(etcd: EtcdProcess) -> None:
    url = etcd.fresh_url()
    store = await started(url)
    names = [f"pods/{number:04}" for number in range(2500)]  # more than a page
    for at in range(0, len(names), 250):
        await asyncio.gather(*(put(store, name) for name in names[at : at + 250]))
    before = store.list("").records
    await store.close()
    again = await started(url)
    assert [r.key for r in again.list("").records] == names
    assert [r.mod_revision for r in again.list("").records] == [r.mod_revision for r in before]
    assert again.compacted == again.revision
    await again.close()


# ---- TTL, sealing, compaction ----


async def test_keys_with_a_ttl_share_a_lease_and_expire(etcd: EtcdProcess) -> None:
    store = await started(etcd.fresh_url())
    seen = SeenEvents(store, "events/")
    await asyncio.gather(*(put(store, f"events/{n}", ttl=1) for n in range(5)))
    await put(store, "events/kept", ttl=1)
    await put(store, "events/kept")
    start = store._etcd_key("events/")
    found = await store._client.range(wire.range_request(start, wire.prefix_end(start)))
    leases = {kv.key[len(start) :]: kv.lease for kv in found.kvs}
    assert leases.pop(b"kept") == 0
    assert len(set(leases.values())) <= 2 and all(leases.values())
    await seen.wait_for(lambda: store.count("events/") == 1)
    assert store.get("events/kept") is not None
    await store.close()


async def _revoke_lease(store: EtcdStore, lease: int) -> None:
    request = wire.lease_grant_request(lease)  # the same bytes: one number
    await store._client._call("/etcdserverpb.Lease/LeaseRevoke", request, 5.0)


async def test_keys_with_a_ttl_get_another_lease_when_theirs_is_lost(etcd: EtcdProcess) -> None:
    store = await started(etcd.fresh_url())
    await put(store, "events/a", ttl=60)
    lost = await store._leases.find(60)
    await _revoke_lease(store, lost)
    await asyncio.gather(*(put(store, f"events/{n}", ttl=60) for n in "bcd"))
    assert await store._leases.find(60) != lost
    await store.close()


async def test_a_fence_gets_another_lease_when_its_own_is_lost(etcd: EtcdProcess) -> None:
    store = await started(etcd.fresh_url())
    submitter = store._submitter
    await submitter._write_fence(0, submitter._deadline())
    before = submitter._fence
    await _revoke_lease(store, await store._leases.find(3600.0))
    # The key went with its lease, which the first attempt notices.
    await submitter._write_fence(before, submitter._deadline())
    await submitter._write_fence(submitter._fence, submitter._deadline())
    assert submitter._fence > before
    await store.close()


async def test_sealed_values_are_encrypted_in_etcd_and_plain_in_memory(etcd: EtcdProcess) -> None:
    url = etcd.fresh_url()
    sealing = Sealing(KeyRing({"k": bytes(32)}), ("secrets",))
    store = await started(url, sealing=sealing)
    await put(store, "secrets/a", b"password")
    await put(store, "pods/a", b"open")
    start = store._etcd_key("")
    raw = await store._client.range(wire.range_request(start, wire.prefix_end(start)))
    assert [b"password" in kv.value for kv in raw.kvs] == [False, False]
    await store.close()
    again = await started(url, sealing=sealing)
    assert [r.value for r in again.list("").records] == [b"open", b"password"]
    await again.close()
    with pytest.raises(StoreError, match="is encrypted, and no key was given"):
        await started(url)
    # Another key first: everything is encrypted again, and the old one is not needed any more.
    newer = KeyRing({"n": bytes([1] * 32)})
    former = newer.with_former([KeyRing({"k": bytes(32)})])
    await (await started(url, sealing=Sealing(former, ("secrets",)))).close()
    renewed = await started(url, sealing=Sealing(newer, ("secrets",)))
    assert [r.value for r in renewed.list("").records] == [b"open", b"password"]
    await renewed.close()
    # No buckets: everything is decrypted.
    await (await started(url, sealing=Sealing(newer))).close()
    without = await started(url)
    assert [r.value for r in without.list("").records] == [b"open", b"password"]
    await without.close()


async def test_one_of_two_servers_compacts_to_the_revision_of_the_last_round(
    own_etcd: EtcdProcess,
) -> None:
    client = EtcdClient(parse_etcd_address(own_etcd.fresh_url()))
    first, second = (EtcdCompactor(client, RealClock()) for _ in range(2))
    assert not await first.compact_once()
    assert not await second.compact_once()  # learns of the first
    store = EtcdStore(client, "/x")
    await store.start()
    await put(store, "pods/a")
    rounds = [await first.compact_once(), await second.compact_once()]
    assert rounds == [True, False]
    with pytest.raises(Exception, match="compacted"):
        await client.range(wire.range_request(b"/x/", revision=1))
    await store.close()


# ---- faults ----


async def test_a_lost_connection_leaves_no_gap_in_a_watch(etcd: EtcdProcess) -> None:
    url = etcd.fresh_url()
    proxy = Forwarder(etcd)
    behind = await started(url.replace(etcd.address, await proxy.start()))
    direct = await started(url)
    seen = SeenEvents(behind, "pods/")
    await put(direct, "pods/0")
    await behind.sync()
    proxy.disconnect()
    for number in range(1, 4):
        await put(direct, f"pods/{number}")
    with pytest.raises(StoreUnavailable):
        await put(behind, "pods/never")
    assert behind.count("pods/") == 1  # reads continue, from the copy
    proxy.cut = False
    await seen.wait_for(lambda: len(seen) == 4)
    assert [event.key for event in seen] == [f"pods/{n}" for n in range(4)]
    await until_written(behind, "pods/4")
    await behind.close()
    await direct.close()
    await proxy.stop()


async def test_a_compaction_during_a_lost_connection_resets_the_copy(own_etcd: EtcdProcess) -> None:
    url = own_etcd.fresh_url()
    proxy = Forwarder(own_etcd)
    behind = await started(url.replace(own_etcd.address, await proxy.start()))
    direct = await started(url)
    await put(direct, "pods/changed", b"1")
    await put(direct, "pods/deleted")
    await put(direct, "pods/same")
    await behind.sync()
    seen, resets = SeenEvents(behind, "pods/"), []
    behind.on_reset(lambda: resets.append(behind.revision))
    proxy.disconnect()
    await put(direct, "pods/changed", b"2")
    await direct.delete("pods/deleted")
    last = await put(direct, "pods/new")
    await direct._client.compact(last.mod_revision)
    proxy.cut = False
    await seen.wait_for(lambda: len(seen) == 3)
    shown = {event.key: event.record and event.record.value for event in seen}
    assert shown == {"pods/changed": b"2", "pods/deleted": None, "pods/new": b"x"}
    assert len(resets) == 1
    assert behind.compacted == behind.revision == last.mod_revision
    await until_written(behind, "pods/after")
    await behind.close()
    await direct.close()
    await proxy.stop()


async def test_a_killed_and_restarted_member_is_found_again(own_etcd: EtcdProcess) -> None:
    store = await started(own_etcd.fresh_url())
    seen = SeenEvents(store, "pods/")
    await put(store, "pods/a")
    own_etcd.kill()
    with pytest.raises(StoreUnavailable, match=r"connection refused|transport is closing"):
        await put(store, "pods/b")
    with pytest.raises(StoreUnavailable):
        await store.sync()
    assert store.get("pods/a") is not None
    await eventually(lambda: has_problem(store, True))
    await asyncio.to_thread(own_etcd.start)
    await until_written(store, "pods/c")
    await seen.wait_for(lambda: [event.key for event in seen] == ["pods/a", "pods/c"])
    await eventually(lambda: has_problem(store, False))
    await store.close()


async def test_a_restored_backup_replaces_the_copy(own_etcd: EtcdProcess) -> None:
    store = await started(own_etcd.fresh_url())
    await put(store, "pods/kept", b"1")
    backup = own_etcd.folder / "backup"
    own_etcd.kill()
    await asyncio.to_thread(shutil.copytree, own_etcd.folder / "data", backup)
    await asyncio.to_thread(own_etcd.start)
    for number in range(3):
        await until_written(store, f"pods/later-{number}")
    await until_written(store, "pods/kept")
    newest = store.revision
    seen = SeenEvents(store, "pods/")
    own_etcd.kill()
    await asyncio.to_thread(own_etcd.forget_data)
    await asyncio.to_thread(shutil.copytree, backup, own_etcd.folder / "data")
    await asyncio.to_thread(own_etcd.start)
    await seen.wait_for(lambda: store.count("pods/") == 1)
    assert store.revision < newest
    found = store.get("pods/kept")
    assert found is not None and found.value == b"1"
    await until_written(store, "pods/after")
    assert [event.key for event in seen][-1] == "pods/after"
    await store.close()


async def test_a_restored_backup_is_noticed_even_if_newer_writes_followed(
    own_etcd: EtcdProcess,
) -> None:
    url = own_etcd.fresh_url()
    proxy = Forwarder(own_etcd)
    behind = await started(url.replace(own_etcd.address, await proxy.start()))
    await put(behind, "pods/lost")
    revision = behind.revision
    proxy.disconnect()
    own_etcd.kill()
    await asyncio.to_thread(own_etcd.forget_data)
    await asyncio.to_thread(own_etcd.start)
    other = await started(url)
    for number in range(5):
        await put(other, f"pods/{number}")
    assert other.revision > revision
    seen = SeenEvents(behind, "pods/")
    proxy.cut = False
    await seen.wait_for(lambda: behind.count("pods/") == 5)
    assert behind.get("pods/lost") is None
    await behind.close()
    await other.close()
    await proxy.stop()


@pytest.fixture
def three_members(tmp_path: Path) -> Iterator[list[EtcdProcess]]:
    require_etcd()
    members = [EtcdProcess(tmp_path / name, name) for name in ("one", "two", "three")]
    for member in members:
        member.cluster = ",".join(f"{other.name}={other.peer}" for other in members)
        member.launch()
    for member in members:
        member.wait_listening()
    yield members
    for member in members:
        member.kill()


async def test_a_cluster_survives_one_member_and_refuses_writes_without_a_quorum(
    three_members: list[EtcdProcess],
) -> None:
    hosts = ",".join(member.address for member in three_members)
    store = await started(f"etcd://{hosts}/registry")
    await put(store, "pods/a")
    three_members[0].kill()
    await until_written(store, "pods/b")
    await store.sync()
    three_members[1].send_signal(signal.SIGSTOP)
    with pytest.raises(StoreUnavailable) as refused:
        while True:  # the paused member may have been the leader, or not
            await put(store, "pods/c")
    # The errors of etcd and its client that Kubernetes shows, not that of our own closed connection.
    assert re.match(r"etcdserver: |context deadline exceeded|.* transport: ", str(refused.value))
    assert store.count("pods/") >= 2
    await eventually(lambda: has_problem(store, True))
    three_members[1].send_signal(signal.SIGCONT)
    await until_written(store, "pods/d")
    await store.sync()
    await store.close()


async def test_the_deadline_of_a_call_includes_connecting() -> None:
    # Members that are suspended: their kernel accepts connections, and they never answer.
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as second,
    ):
        hosts = ",".join(f"127.0.0.1:{one.getsockname()[1]}" for one in (first, second))
        client = EtcdClient(parse_etcd_address(f"etcd://{hosts}"))
        async with asyncio.timeout(1.5):  # connecting to one of them alone may take 2 s
            with pytest.raises(RpcError) as failed:
                await client.range(wire.range_request(b"a"), seconds=0.2)
        await client.close()
    assert failed.value.code == "DeadlineExceeded"


# ---- addresses, TLS, users ----


def test_addresses() -> None:
    found = parse_etcd_address("etcd://me:p%40ss@a:1,b,[::1]:3/some/prefix?ca=/ca")
    assert found.endpoints == (("a", 1), ("b", 2379), ("::1", 3))
    assert (found.user, found.password, found.prefix) == ("me", "p@ss", "/some/prefix")
    assert found.tls and found.ca == "/ca"
    plain = parse_etcd_address("etcd://127.0.0.1:2379")
    assert plain.prefix == "/registry" and not plain.tls
    for wrong in ("http://a", "etcd://", "etcd://a:x", "etcd://a?x=1", "etcd://a?cert=/c"):
        with pytest.raises(EtcdAddressError):
            parse_etcd_address(wrong)


def test_an_address_is_shown_without_its_password() -> None:
    shown = address_without_password("etcds://me:p%40ss@a:1,b/some/prefix?ca=/ca")
    assert shown == "etcds://me@a:1,b/some/prefix?ca=/ca"
    assert address_without_password("etcd://a:1,b") == "etcd://a:1,b"
    assert address_without_password("") == ""


async def test_a_connection_that_is_refused_is_reported_as_by_kubernetes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    client = EtcdClient(parse_etcd_address(f"etcd://127.0.0.1:{port}"))
    with pytest.raises(RpcError) as failed:
        await client.range(wire.range_request(b"a"), seconds=0.2)
    await client.close()
    assert failed.value.description.endswith(
        f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    )


def test_tls_with_client_certificates(tmp_path: Path) -> None:
    require_etcd()
    ca = make_ca("etcd-ca")
    files = {name: tmp_path / name for name in ("ca", "ca.key", "crt", "key", "me", "me.key")}
    save_key_pair(ca, files["ca"], files["ca.key"])
    save_key_pair(issue_server(ca, "etcd", ips=["127.0.0.1"]), files["crt"], files["key"])
    save_key_pair(issue_client(ca, "apiserver"), files["me"], files["me.key"])
    member = EtcdProcess(
        tmp_path / "etcd",
        options=(
            *("--cert-file", str(files["crt"]), "--key-file", str(files["key"])),
            *("--client-cert-auth", "--trusted-ca-file", str(files["ca"])),
        ),
    )
    member.scheme = "https"
    member.start()

    async def scenario() -> None:
        tls = f"ca={files['ca']}&cert={files['me']}&key={files['me.key']}"
        store = await started(f"etcds://{member.address}/registry?{tls}")
        await put(store, "pods/a")
        await store.close()
        refused = make_store(f"etcds://{member.address}/registry?ca={files['ca']}")
        with pytest.raises(Exception, match=r"."):
            await asyncio.wait_for(refused._client.version(), 5)
        await refused._client.close()

    try:
        asyncio.run(scenario())
    finally:
        member.kill()


def _etcdctl(member: EtcdProcess, *commands: str) -> None:
    etcdctl = shutil.which("etcdctl")
    if etcdctl is None:
        pytest.skip("etcdctl is not installed (apt-get install etcd-client)")
    for command in commands:
        subprocess.run(
            [etcdctl, "--endpoints", member.address, *command.split()],
            env={"ETCDCTL_API": "3"},
            check=True,
            capture_output=True,
        )


def _enable_authentication(member: EtcdProcess) -> None:
    _etcdctl(member, "user add root:secret", "user grant-role root root", "auth enable")


async def test_user_and_password(own_etcd: EtcdProcess) -> None:
    _enable_authentication(own_etcd)
    store = await started(f"etcd://root:secret@{own_etcd.address}/registry")
    await put(store, "pods/a")
    own_etcd.kill()  # which forgets its simple tokens
    await asyncio.to_thread(own_etcd.start)
    await until_written(store, "pods/b")
    await store.close()
    with pytest.raises(StoreUnavailable, match="user name is empty"):
        await started(f"etcd://{own_etcd.address}/registry")


async def test_users_and_roles_may_change_while_a_store_is_used(tmp_path: Path) -> None:
    """A signed token names the revision of users and roles, and is refused after a change."""
    require_etcd()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = tmp_path / "jwt.key", tmp_path / "jwt.pub"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    tokens = f"--auth-token=jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=10m"
    member = EtcdProcess(tmp_path / "etcd", options=(tokens,)).start()
    try:
        _enable_authentication(member)
        store = await started(f"etcd://root:secret@{member.address}/registry")
        for number in range(3):
            _etcdctl(member, f"--user root:secret role add r{number}")
            await asyncio.gather(*(put(store, f"pods/{number}-{other}") for other in range(5)))
        assert store.count("pods/") == 15
        await store.close()
    finally:
        member.kill()
