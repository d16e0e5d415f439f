"""Identity x verb x path form x resource: what the server decides and touches, against the oracle.

For every request of the generated matrix:
- it is forbidden, with Kubernetes' exact message, exactly when RBAC forbids the attributes that
  Kubernetes would compute;
- a forbidden request changes nothing, returns nothing and connects to nothing;
- an allowed request reads and writes only the objects that were authorized.

The whole matrix has over 120,000 rows. An ordinary run takes a fixed quarter of them; with
TRANSOM_FULL_MATRIX=1 it takes all.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import zlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
import pytest
from tests.apiserver.authorization.matrix_rows import (
    _POD,
    APPLY,
    CONFIG_MAPS,
    DEPLOYMENTS,
    GADGETS,
    IDENTITIES,
    KINDS,
    LEASES,
    MISMATCH,
    NAME_QUERIES,
    NAMES,
    NAMESPACE,
    NAMESPACES,
    NEW,
    NODE_IP,
    NODES,
    POD_IPS,
    PODS,
    RBAC,
    RELATED,
    SECRETS,
    WIDGETS,
    Kind,
    Row,
    others,
    reads,
    subresources,
    writes,
)
from tests.apiserver.harness import ADMIN, Api, FakeStream, start

from transom.apiserver.core.context import UserInfo
from transom.apiserver.kubelets.options import KubeletOptions
from transom.apiserver.serving.inprocess import InProcessClient
from transom.apiserver.serving.inprocess_watch import InProcessWatch
from transom.client.api import ObjectList
from transom.client.resources import GroupVersionResource
from transom.http.messages import (
    HttpRequest,
    HttpResponse,
    PeerCertificate,
    StreamResponse,
    decode_path,
)
from transom.machinery.errors import ApiError

from . import oracle
from .oracle import Attributes, Identity

# ---- the server ----


class Harness:
    """A server with two objects of each kind in each place, which are put back after every
    change.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self.dialed: list[tuple[str, int]] = []
        self.objects: dict[str, bytes] = {}
        self.revision = 0

    def remember(self) -> None:
        store = self.api.server.storage.store
        self.objects = {record.key: record.value for record in store.list("").records}
        self.revision = store.revision

    async def changes(self) -> dict[str, bytes | None]:
        """What was changed since `remember`; afterwards it is as before."""
        store = self.api.server.storage.store
        if store.revision == self.revision:
            return {}
        now = {record.key: record.value for record in store.list("").records}
        changed = {
            k: now.get(k) for k in {**now, **self.objects} if now.get(k) != self.objects.get(k)
        }
        for key in changed:
            before = self.objects.get(key)
            if before is None:
                await store.delete(key)
                continue
            obj = orjson.loads(before)

            def encode(revision: int, obj: Any = obj) -> bytes:
                obj["metadata"]["resourceVersion"] = str(revision)
                return orjson.dumps(obj)

            self.objects[key] = (await store.put(key, encode)).value
        self.revision = store.revision
        return changed

    async def touch(self, kind: Kind) -> None:
        """An event for every object of the kind."""
        store = self.api.server.storage.store
        for key, value in self.objects.items():
            if key.startswith(kind.bucket + "/"):
                obj = orjson.loads(value)

                def encode(revision: int, obj: Any = obj) -> bytes:
                    obj["metadata"]["resourceVersion"] = str(revision)
                    return orjson.dumps(obj)

                self.objects[key] = (await store.put(key, encode)).value
        self.revision = store.revision

    def names(self, kind: Kind) -> set[tuple[str, str]]:
        found = {
            tuple(key.split("/")[1:]) for key in self.objects if key.startswith(kind.bucket + "/")
        }
        return {(k[0], k[1]) if kind.namespaced else ("", k[0]) for k in found}


async def make_bench() -> Harness:
    dialed: list[tuple[str, int]] = []

    async def refuse(host: str, port: int) -> socket.socket:
        dialed.append((host, port))
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    api = await start(kubelets=KubeletOptions(connect=refuse))
    await asyncio.sleep(0)  # each step in a callback of its own
    await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    for kind in (WIDGETS, GADGETS):
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            },
        }
        names = {
            "plural": kind.plural,
            "kind": kind.kind,
            "singular": kind.plural[:-1],
            "listKind": f"{kind.kind}List",
        }
        spec = {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
            "names": names,
        }
        await api.ok(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            {"metadata": {"name": f"{kind.plural}.{kind.group}"}, "spec": spec},
        )
        for _ in range(100):
            if (await api.call("GET", kind.path()))[0] == 200:
                break
            await asyncio.sleep(0)
    for namespace in NAMESPACES:
        await api.ok(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts",
            {"metadata": {"name": "default"}},
        )
    await api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    status = {"addresses": [{"type": "InternalIP", "address": NODE_IP}]}
    for kind in KINDS:
        await asyncio.sleep(0)
        for namespace in NAMESPACES if kind.namespaced else ("",):
            for name in NAMES:
                body = kind.object(namespace, name)
                if kind is PODS and (namespace, name) == ("default", "a"):
                    volumes = [
                        {"name": "s", "secret": {"secretName": "a"}},
                        {"name": "c", "configMap": {"name": "a"}},
                    ]
                    body["spec"] = {**_POD, "volumes": volumes}
                await api.ok("POST", kind.path(namespace), body)
                if kind is PODS:
                    running = {
                        "phase": "Running",
                        "podIP": POD_IPS[name],
                        "podIPs": [{"ip": POD_IPS[name]}],
                    }
                    await api.ok(
                        "PATCH",
                        kind.path(namespace, name) + "/status",
                        {"status": running},
                        media="application/merge-patch+json",
                    )
    for node in ("n1", *NAMES):
        await api.ok(
            "PATCH",
            f"/api/v1/nodes/{node}/status",
            {"status": status},
            media="application/merge-patch+json",
        )
    for identity in IDENTITIES:
        await asyncio.sleep(0)
        for namespace, rules in {"": identity.cluster, **identity.namespaced}.items():
            if not rules:
                continue
            name = identity.name.replace(":", "-")
            prefix, scope = (
                ("", f"/apis/{RBAC}/v1/namespaces/{namespace}")
                if namespace
                else ("cluster", f"/apis/{RBAC}/v1")
            )
            await api.ok(
                "POST",
                f"{scope}/{prefix}roles",
                {"metadata": {"name": name}, "rules": [rule.as_object() for rule in rules]},
            )
            await api.ok(
                "POST",
                f"{scope}/{prefix}rolebindings",
                {
                    "metadata": {"name": name},
                    "roleRef": {
                        "apiGroup": RBAC,
                        "kind": "Role" if namespace else "ClusterRole",
                        "name": name,
                    },
                    "subjects": [{"kind": "User", "apiGroup": RBAC, "name": identity.name}],
                },
            )
    harness = Harness(api)
    harness.dialed = dialed
    harness.remember()
    return harness


# ---- judging ----


@dataclass
class Outcome:
    status: int
    found: Any = None  # the decoded body
    text: str = ""
    seen: set[tuple[str, str]] = field(default_factory=set)  # objects that a list or watch showed
    stream: bool = False


async def ask(harness: Harness, who: Identity, row: Row) -> Outcome:
    raw = row.target.encode()
    path = decode_path(raw)
    assert path is not None
    headers = {k.encode(): v.encode() for k, v in row.headers.items()}
    headers |= {b"accept": b"application/json", b"user-agent": b"matrix/1"}
    if row.body is not None:
        headers[b"content-type"] = row.media.encode()
    body = b"" if row.body is None else orjson.dumps(row.body)
    peer = PeerCertificate(who.name, list(who.groups)) if who.name != "admin" else ADMIN
    answer = harness.api.server.handler(
        HttpRequest(row.method, raw, path, headers, body, peer, remote="127.0.0.1")
    )
    answer = await answer if hasattr(answer, "__await__") else answer
    if isinstance(answer, StreamResponse):
        stream = FakeStream()
        answer.start(stream)  # type: ignore[arg-type]
        if row.kind is not None:
            await harness.touch(row.kind)
            await asyncio.sleep(0)
        seen = {_where(event["object"]) for event in stream.events() if event["type"] != "BOOKMARK"}
        if stream.on_close is not None:
            stream.on_close()
        return Outcome(answer.status, seen=seen, stream=True)
    if not isinstance(answer, HttpResponse):
        return Outcome(answer.status)
    data = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return Outcome(answer.status, text=data.decode(errors="replace"))
    out = Outcome(answer.status, found)
    if isinstance(found, dict) and answer.status < 300:
        if isinstance(found.get("items"), list):
            out.seen = {_where(item) for item in found["items"]}
        elif found.get("kind") not in (
            "Status",
            "APIResourceList",
            "APIGroupList",
            "APIVersions",
            None,
        ):
            out.seen = {_where(found)}
    return out


def _where(obj: Any) -> tuple[str, str]:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta.get("name", "")


def problems(
    harness: Harness, who: Identity, row: Row, got: Outcome, changed: dict[str, bytes | None]
) -> Iterator[str]:
    try:
        requested = oracle.attributes(row.method, row.target)
    except oracle.NoRequestInfo:
        if got.status != 500 or "failed to create RequestInfo" not in got.text:
            yield f"expected 500, got {got}"
        return
    decision = oracle.decide(who, requested, RELATED)
    if not decision.allowed:
        expected = oracle.forbidden(who, requested, decision.reason)
        message = got.found.get("message") if isinstance(got.found, dict) else got.text
        if (got.status, message) != (403, expected):
            yield f"expected 403 {expected!r}, got {got.status} {message!r}"
        if changed:
            yield f"forbidden, but changed {sorted(changed)}"
        if got.seen:
            yield f"forbidden, but showed {got.seen}"
        if harness.dialed:
            yield f"forbidden, but connected to {harness.dialed}"
        return
    yield from _reach(harness, row, requested, got, changed)
    second = _create_denied(harness, who, row, requested)
    if second is not None:
        message = got.found.get("message") if isinstance(got.found, dict) else got.text
        if (got.status, message) != (403, second):
            yield f"expected 403 {second!r}, got {got.status} {message!r}"
        if changed:
            yield f"may not create, but changed {sorted(changed)}"
    elif got.status == 403 and not who.node:
        yield f"allowed, but got 403 {got.found}"
    elif row.serves and got.status >= 300:
        yield f"allowed, but got {got.status} {got.found or got.text}"


def _create_denied(harness: Harness, who: Identity, row: Row, requested: Attributes) -> str | None:
    """The message when an update of what does not exist is allowed, and creating it is not."""
    kind = row.kind
    if (
        kind is None
        or requested.verb not in ("update", "patch")
        or requested.subresource
        or not isinstance(row.body, dict)
    ):
        return None
    if (
        not (row.media == APPLY or (requested.verb == "update" and kind.upsert))
        or requested.resource != kind.plural
    ):
        return None
    meta = row.body["metadata"]
    if (
        kind.key(requested.namespace, requested.name) in harness.objects
        or meta["name"] != requested.name
    ):
        return None
    if kind.namespaced and meta["namespace"] != requested.namespace:
        return None
    create = Attributes(
        "create",
        requested.path,
        True,
        requested.group,
        requested.namespace,
        requested.resource,
        "",
        requested.name,
    )
    decision = oracle.decide(who, create, RELATED)
    full = f"{requested.resource}.{requested.group}" if requested.group else requested.resource
    return (
        None if decision.allowed else f'{full} "{requested.name}" is forbidden: {decision.reason}'
    )


def _reach(
    harness: Harness,
    row: Row,
    requested: Attributes,
    got: Outcome,
    changed: dict[str, bytes | None],
) -> Iterator[str]:
    """What an allowed request may show and change."""
    kind = row.kind
    if kind is None:
        if changed:
            yield f"changed {sorted(changed)}"
        return
    _, query = oracle.split_target(row.target)
    terms = oracle.field_terms(query.get("fieldSelector", [""])[0])
    there = harness.names(kind)
    scope = requested.namespace if kind.namespaced else ""
    in_scope = {
        (ns, name)
        for ns, name in there
        if (not scope or ns == scope) and (not requested.name or name == requested.name)
    }
    # Rights in a namespace reach no object outside of it; a Namespace is in itself.
    if (
        requested.namespace
        and not kind.namespaced
        and not (kind is NAMESPACE and requested.name == requested.namespace)
    ):
        if got.seen or changed:
            yield f"asked in namespace {requested.namespace}, and reached {got.seen or sorted(changed)}"
        return
    if requested.verb in ("list", "watch"):
        if not got.seen <= in_scope:
            yield f"showed {got.seen - in_scope}"
        selected = terms is not None and all(
            t[0] in ("metadata.name", "metadata.namespace") for t in terms
        )
        plain = (
            got.status == 200
            and not requested.subresource
            and requested.resource == kind.plural
            and (got.stream or got.found)
        )
        if plain and selected and terms is not None and not {"labelSelector", "limit"} & set(query):
            expected = {(ns, name) for ns, name in in_scope if oracle.matches(terms, ns, name)}
            if got.seen != expected:
                yield f"showed {got.seen} instead of {expected}"
        if terms and requested.name and "/watch/" in requested.path and row.method == "GET":
            another = oracle.exact_name(terms) != requested.name
            if another and got.status not in (400, 404):
                yield f"a selector of another name, and got {got.status}"
            message = got.found.get("message") if got.status == 400 else MISMATCH
            if message != MISMATCH and _legal(terms, kind) and "limit" not in query:
                yield f"unexpected message {message!r}"
    elif (
        requested.verb == "get"
        and not requested.subresource
        and not got.seen <= {(scope, requested.name)}
    ):
        yield f"showed {got.seen}"
    yield from _changes(kind, row, requested, terms or [], there, changed)
    hosts = {host for host, _ in harness.dialed}
    if hosts:
        pod = (
            requested.name.split(":")[1]
            if requested.name.count(":") == 2
            else requested.name.split(":")[0]
        )
        wanted = (
            {POD_IPS.get(pod)}
            if (requested.resource, requested.subresource) == ("pods", "proxy")
            else {NODE_IP}
        )
        if (
            requested.subresource not in ("exec", "attach", "portforward", "proxy", "log")
            or hosts != wanted
        ):
            yield f"connected to {hosts}, not {wanted}"


def _legal(terms: list[oracle.Term], kind: Kind) -> bool:
    return all(
        name == "metadata.name" or (name == "metadata.namespace" and kind.namespaced)
        for name, _, _ in terms
    )


def _changes(
    kind: Kind,
    row: Row,
    requested: Attributes,
    terms: list[oracle.Term],
    there: set[tuple[str, str]],
    changed: dict[str, bytes | None],
) -> Iterator[str]:
    if not changed:
        return
    scope = requested.namespace if kind.namespaced else ""
    if "dryRun=All" in row.target or (isinstance(row.body, dict) and row.body.get("dryRun")):
        yield f"a dry run changed {sorted(changed)}"
    elif requested.verb in ("get", "list", "watch", "", "proxy"):
        yield f"{requested.verb} changed {sorted(changed)}"
    elif requested.verb == "deletecollection":
        allowed = {
            kind.key(ns, name)
            for ns, name in there
            if ns == scope and oracle.matches(terms, ns, name)
        }
        if not set(changed) <= allowed:
            yield f"deleted {sorted(set(changed) - allowed)}"
    else:
        name = requested.name or row.body["metadata"]["name"]
        if set(changed) != {kind.key(scope, name)}:
            yield f"changed {sorted(changed)}, not {kind.key(scope, name)}"
    for key, value in changed.items():
        if value is not None and kind.key(*_where(orjson.loads(value))) != key:
            yield f"{key} holds another object: {value!r}"


# ---- the tests ----


def rows_of(kind: Kind) -> list[Row]:
    return [
        *reads(kind),
        *(writes(kind) if kind.writable else ()),
        *(subresources(kind) if kind.subresources else ()),
    ]


def chosen(identities: tuple[Identity, ...], rows: list[Row]) -> Iterator[tuple[Identity, Row]]:
    share = 1 if os.environ.get("TRANSOM_FULL_MATRIX") else 4
    for who in identities:
        for row in rows:
            if zlib.crc32(f"{who.name} {row}".encode()) % share == 0:
                yield who, row


async def judge(harness: Harness, requested: list[tuple[Identity, Row]]) -> tuple[int, list[str]]:
    allowed, failures = 0, []
    for count, (who, row) in enumerate(requested):
        harness.dialed.clear()
        got = await ask(harness, who, row)
        changed = await harness.changes()
        allowed += got.status != 403
        failures += [
            f"{who.name}: {row}: {problem}" for problem in problems(harness, who, row, got, changed)
        ]
        if count % 20 == 0:
            await asyncio.sleep(0)
    return allowed, failures


def run_matrix(identities: tuple[Identity, ...], rows: list[Row], at_least: int) -> None:
    async def main() -> None:
        harness = await make_bench()
        pairs = list(chosen(identities, rows))
        allowed, failures = await judge(harness, pairs)
        requested = len(pairs)
        assert not failures, f"{len(failures)} of {requested}:\n" + "\n".join(failures[:25])
        assert requested >= at_least
        assert at_least // 20 < allowed < requested  # neither everything nor nothing
        await harness.api.server.stop()

    asyncio.run(main())


PEOPLE = tuple(who for who in IDENTITIES if not who.node)
NODES_ALONE = tuple(who for who in IDENTITIES if who.node)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_decisions_match_the_effects(kind: Kind) -> None:
    run_matrix(PEOPLE, rows_of(kind), 1300)


@pytest.mark.parametrize("kind", [SECRETS, CONFIG_MAPS], ids=lambda kind: kind.plural)
def test_a_kubelet_reads_what_its_pods_refer_to(kind: Kind) -> None:
    run_matrix(NODES_ALONE, rows_of(kind), 100)


def test_other_paths() -> None:
    run_matrix(PEOPLE, list(others()), 500)


# ---- components in the process ----


def component_calls(
    client: InProcessClient, kind: Kind
) -> Iterator[tuple[str, str, Callable[[], Awaitable[Any]]]]:
    """The request that a call stands for, and the call."""
    resource = GroupVersionResource(kind.group, kind.version, kind.plural, kind.namespaced)
    for namespace in NAMESPACES if kind.namespaced else ("",):
        path = kind.path(namespace)
        yield "POST", path, partial(client.create, resource, namespace, kind.object(namespace, NEW))
        yield "DELETE", path, partial(client.delete_collection, resource, namespace)
        selectors = {
            "": "",
            f"?{NAME_QUERIES[0]}": "metadata.name=a",
            f"?{NAME_QUERIES[3]}": "metadata.name!=a",
        }
        for query, selector in selectors.items():
            yield (
                "GET",
                path + query,
                partial(client.list, resource, namespace, field_selector=selector),
            )
            watched = f"{path}{query}{'&' if query else '?'}watch=1"
            yield (
                "GET",
                watched,
                partial(client.watch, resource, namespace, field_selector=selector),
            )
        for name in ("a", NEW):
            one, obj = kind.path(namespace, name), kind.object(namespace, name)
            yield "GET", one, partial(client.get, resource, namespace, name)
            yield "PUT", one, partial(client.update, resource, obj)
            yield (
                "PATCH",
                one,
                partial(
                    client.patch, resource, namespace, name, {"metadata": {"labels": {"x": "y"}}}
                ),
            )
            yield (
                "PATCH",
                f"{one}?apply",
                partial(client.patch, resource, namespace, name, obj, APPLY, field_manager="m"),
            )
            yield "DELETE", one, partial(client.delete, resource, namespace, name)
            for sub in kind.subresources:
                if sub in ("status", "scale"):
                    yield (
                        "GET",
                        f"{one}/{sub}",
                        partial(client.get, resource, namespace, name, subresource=sub),
                    )


@pytest.mark.parametrize(
    "kind", [SECRETS, LEASES, NAMESPACE, NODES, DEPLOYMENTS, WIDGETS], ids=lambda kind: kind.plural
)
async def test_components_are_authorized_like_other_clients(kind: Kind) -> None:
    harness = await make_bench()
    failures = []
    for who in PEOPLE:
        client = InProcessClient(
            harness.api.server, UserInfo(who.name, (*who.groups, "system:authenticated"))
        )
        for method, target, call in component_calls(client, kind):
            await asyncio.sleep(0)
            try:
                done = await call()
                got = Outcome(200, found={})
                if isinstance(done, ObjectList):
                    got.seen = {_where(item) for item in done.items}
                elif isinstance(done, InProcessWatch):
                    got.seen = (
                        {_where(event.object) for event in await done.next()}
                        if done._batches
                        else set()
                    )
                    done.close()
                elif isinstance(done, dict) and "metadata" in done and done.get("kind") != "Status":
                    got.seen = {_where(done)}
            except ApiError as problem:
                got = Outcome(problem.code, {"message": problem.message})
            changed = await harness.changes()
            applied = target.endswith("?apply")
            body = kind.object(*_of(target, kind)) if method in ("POST", "PUT") or applied else None
            row = Row(
                method,
                target.removesuffix("?apply"),
                body,
                APPLY if applied else "application/json",
                kind=kind,
            )
            failures += [
                f"{who.name}: {row}: {text}" for text in problems(harness, who, row, got, changed)
            ]
    assert not failures, f"{len(failures)}:\n" + "\n".join(failures[:25])
    await harness.api.server.stop()


def _of(target: str, kind: Kind) -> tuple[str, str]:
    """The namespace and name of the object that a component sends there."""
    requested = oracle.attributes("GET", target)
    return (requested.namespace if kind.namespaced else ""), requested.name or NEW
