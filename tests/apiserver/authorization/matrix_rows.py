"""The requests of the authorization matrix: kinds, identities, and each request in all its spellings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .oracle import Identity, Rule

RBAC = "rbac.authorization.k8s.io"
NAMESPACES = ("default", "team")
NAMES = ("a", "b")
NEW = "new"
MISMATCH = "fieldSelector metadata.name doesn't match requested name"
NODE_IP, POD_IPS = "10.0.0.7", {"a": "10.244.0.1", "b": "10.244.0.2"}


@dataclass(frozen=True)
class Kind:
    """A resource of the matrix. `upsert`: an update creates what does not exist."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    upsert: bool = False
    writable: bool = True
    custom: bool = False
    body: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)
    subresources: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def bucket(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", special: str = "") -> str:
        parts = [
            self.root,
            special,
            f"namespaces/{namespace}" if namespace and self.namespaced else "",
            self.plural,
            name,
        ]
        return "/".join(part for part in parts if part)

    def key(self, namespace: str, name: str) -> str:
        return f"{self.bucket}/{namespace}/{name}" if self.namespaced else f"{self.bucket}/{name}"

    def object(self, namespace: str, name: str) -> dict[str, Any]:
        meta = {"name": name, **({"namespace": namespace} if self.namespaced else {})}
        version = f"{self.group}/{self.version}" if self.group else self.version
        return {"apiVersion": version, "kind": self.kind, "metadata": meta, **self.body}


_POD = {
    "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}],
    "nodeName": "n1",
    "automountServiceAccountToken": False,
    "terminationGracePeriodSeconds": 0,
}
_TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
SECRETS = Kind("", "v1", "secrets", "Secret", body={"stringData": {"k": "v"}})
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap")
PODS = Kind(
    "",
    "v1",
    "pods",
    "Pod",
    writable=False,
    body={"spec": _POD},
    subresources=("status", "log", "exec", "attach", "portforward", "proxy", "eviction", "binding"),
)
ENDPOINTS = Kind("", "v1", "endpoints", "Endpoints", upsert=True)
NAMESPACE = Kind(
    "", "v1", "namespaces", "Namespace", namespaced=False, subresources=("status", "finalize")
)
NODES = Kind("", "v1", "nodes", "Node", namespaced=False, subresources=("status", "proxy"))
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", upsert=True)
DEPLOYMENTS = Kind(
    "apps",
    "v1",
    "deployments",
    "Deployment",
    subresources=("status", "scale"),
    body={"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}},
)
WIDGETS = Kind("example.com", "v1", "widgets", "Widget", custom=True, subresources=("status",))
GADGETS = Kind("example.com", "v1", "gadgets", "Gadget", namespaced=False, custom=True)
KINDS = (
    SECRETS,
    CONFIG_MAPS,
    PODS,
    ENDPOINTS,
    NAMESPACE,
    NODES,
    LEASES,
    DEPLOYMENTS,
    WIDGETS,
    GADGETS,
)
ALL = "*"
IDENTITIES = (
    Identity("admin", ("system:masters",)),
    Identity("nobody"),
    Identity("reader-of-a", namespaced={"default": (Rule("get list watch", ALL, names="a"),)}),
    Identity(
        "reader",
        namespaced={
            "default": (Rule("get list watch", "secrets configmaps pods widgets deployments"),)
        },
    ),
    Identity("watcher-of-a", cluster=(Rule("watch", ALL, names="a"),)),
    Identity("lister", cluster=(Rule("list", ALL),)),
    Identity(
        "cluster-reader", cluster=(Rule("get list watch", ALL), Rule("get", urls="/metrics /logs*"))
    ),
    Identity("updater", namespaced={"default": (Rule("update patch", ALL),)}),
    Identity("updater-everywhere", cluster=(Rule("update patch get", ALL),)),
    Identity("creator-of-new", cluster=(Rule("update patch", ALL), Rule("create", ALL, names=NEW))),
    Identity("creator", namespaced={"default": (Rule("create", ALL),)}),
    Identity(
        "deleter-of-a", namespaced={"default": (Rule("delete deletecollection", ALL, names="a"),)}
    ),
    Identity(
        "collector", namespaced={"team": (Rule("deletecollection", "configmaps widgets leases"),)}
    ),
    Identity("owner-of-default", namespaced={"default": (Rule(ALL, ALL),)}),
    Identity("status-writer", cluster=(Rule("get update patch", "*/status pods/proxy"),)),
    Identity(
        "connector-of-a",
        cluster=(
            Rule("get create", "pods/exec pods/log pods/proxy nodes/proxy", names="a"),
            Rule("create", "pods/eviction deployments/scale"),
        ),
    ),
    Identity("scaler", namespaced={"default": (Rule("get patch update", "*/scale", "apps"),)}),
    Identity("resource-without-subresources", cluster=(Rule(ALL, "pods nodes namespaces"),)),
    Identity("prober", cluster=(Rule("get head", urls="/metrics /livez/*"),)),
    Identity("system:node:n1", ("system:nodes",)),
)
# Pods of the node n1 refer to these.
RELATED = frozenset({("secrets", "default", "a"), ("configmaps", "default", "a")})
NAME_QUERIES = (
    "fieldSelector=metadata.name%3Da",
    "fieldSelector=metadata.name%3D%3Da",
    "fieldSelector=metadata.name%3Db",
    "fieldSelector=metadata.name%21%3Da",
    "fieldSelector=metadata.name%3Da%2Cmetadata.name%3Db",
    "fieldSelector=metadata.name%3Db&fieldSelector=metadata.name%3Da",
    "fieldSelector=",
    "fieldSelector=metadata.name%3D..",
    "fieldSelector=metadata.namespace%3Dteam%2Cmetadata.name%3Da",
    "limit=x&fieldSelector=metadata.name%3Da",
    "limit=1;fieldSelector=metadata.name%3Da",
    "labelSelector=x%3Dy&fieldSelector=metadata.name%3Da",
)
WATCH_QUERIES = (
    "watch=1",
    "watch=true&resourceVersion=0",
    "watch",
    "watch=false",
    "watch=0",
    "watch=FALSE",
    "watch=no",
)
PATCHES = {
    "application/merge-patch+json": {"metadata": {"labels": {"touched": "yes"}}},
    "application/strategic-merge-patch+json": {"metadata": {"labels": {"touched": "yes"}}},
    "application/json-patch+json": [
        {"op": "add", "path": "/metadata/labels", "value": {"touched": "yes"}}
    ],
}
APPLY = "application/apply-patch+yaml"
SPDY = {
    "connection": "Upgrade",
    "upgrade": "SPDY/3.1",
    "x-stream-protocol-version": "v4.channel.k8s.io",
}
WEBSOCKET = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-version": "13",
    "sec-websocket-protocol": "v4.channel.k8s.io",
}
OVERRIDE = {"x-http-method-override": "GET", "x-http-method": "GET", "x-method-override": "GET"}


@dataclass(frozen=True)
class Row:
    method: str
    target: str
    body: Any = None
    media: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    kind: Kind | None = None  # of what may be touched, when the request is allowed
    serves: bool = False  # a plain request that succeeds when it is allowed

    def __str__(self) -> str:
        return (
            f"{self.method} {self.target} "
            f"{self.media if self.body is not None else ''}{sorted(self.headers)}"
        )


def spellings(path: str) -> Iterator[str]:
    """Other ways to write a path. Some mean the same, some something else: the oracle knows."""
    head, _, last = path.rpartition("/")
    yield path + "/"
    yield path + "//"
    yield "/" + path
    yield f"{head}//{last}"
    yield f"{head}/./{last}"
    yield f"{head}/../{last}"
    yield f"{head}/x/../{last}"
    yield f"{head}%2F{last}"
    yield f"{head}%2f{last}"
    yield f"{head}/%{ord(last[0]):02x}{last[1:]}"
    yield f"{head}/{last.upper()}"
    yield f"{head}/{last}%20"
    yield f"{head}/{last}%00"
    yield f"{head};x/{last}"
    yield f"{head}/{last};x=y"
    yield f"{head}/{last}%3Fwatch=1"
    yield f"{head}/{last}%23x"
    yield "https://kubernetes.example.com" + path
    yield path.replace("/namespaces/", "/namespaces//")
    yield path.replace("/v1/", "//v1/")
    yield path.replace("/v1/", "/v1//")
    yield path.replace("/api", "/API")
    yield path.replace("/api/v1", "/apis//v1")


def reads(kind: Kind) -> Iterator[Row]:
    namespaces = NAMESPACES if kind.namespaced else ("",)
    for namespace in (*namespaces, ""):
        for special in ("", "watch"):
            collection = kind.path(namespace, special=special)
            yield Row("GET", collection, kind=kind, serves=True)
            for query in (
                *NAME_QUERIES,
                *WATCH_QUERIES,
                "watch=1&" + NAME_QUERIES[0],
                "watch=true&" + NAME_QUERIES[2],
            ):
                yield Row("GET", f"{collection}?{query}", kind=kind)
    for namespace in namespaces:
        for name in (*NAMES, NEW):
            yield Row("GET", kind.path(namespace, name), kind=kind, serves=name != NEW)
            yield Row("GET", kind.path(namespace, name, "watch"), kind=kind, serves=True)
        one = kind.path(namespace, "a")
        for query in (*NAME_QUERIES, *WATCH_QUERIES):
            yield Row("GET", f"{one}?{query}", kind=kind)
            yield Row("GET", f"{kind.path(namespace, 'a', 'watch')}?{query}", kind=kind)
        for spelled in (
            *spellings(one),
            *spellings(kind.path(namespace)),
            *spellings(kind.path(namespace, "a", "watch")),
        ):
            yield Row("GET", spelled, kind=kind)
        for method in ("HEAD", "OPTIONS", "TRACE", "CONNECT"):
            yield Row(method, one, kind=kind)
            yield Row(method, kind.path(namespace), kind=kind)
        yield Row("GET", one, headers=OVERRIDE, kind=kind, serves=True)
        yield Row("POST", kind.path(namespace, "a", "watch"), body={}, kind=kind)
        yield Row("DELETE", kind.path(namespace, "a", "watch"), kind=kind)
        yield Row("GET", kind.path(namespace, "a", "proxy"), kind=kind)
        yield Row("GET", kind.path(namespace, "a/b/c", "proxy"), kind=kind)
        if not kind.namespaced:
            for other in NAMESPACES:
                for method in ("GET", "DELETE"):
                    yield Row(method, f"{kind.root}/namespaces/{other}/{kind.plural}/a", kind=kind)
                    yield Row(method, f"{kind.root}/namespaces/{other}/{kind.plural}", kind=kind)
        else:
            yield Row("GET", f"{kind.root}/{kind.plural}/a", kind=kind)
            yield Row("GET", f"{kind.root}/watch/{kind.plural}/a", kind=kind)
            yield Row("DELETE", f"{kind.root}/{kind.plural}/a", kind=kind)


def writes(kind: Kind) -> Iterator[Row]:
    for namespace in NAMESPACES if kind.namespaced else ("",):
        collection = kind.path(namespace)
        for dry in ("", "?dryRun=All"):
            yield Row("POST", collection + dry, kind.object(namespace, NEW), kind=kind, serves=True)
            for name in ("a", NEW):
                one = kind.path(namespace, name)
                yield Row("PUT", one + dry, kind.object(namespace, name), kind=kind)
                for media, body in PATCHES.items():
                    yield Row("PATCH", one + dry, body, media, kind=kind)
                query = f"?fieldManager=m&force=true&{dry[1:]}"
                yield Row(
                    "PATCH",
                    one + query,
                    kind.object(namespace, name),
                    APPLY,
                    kind=kind,
                    serves=True,
                )
                yield Row("DELETE", one + dry, kind=kind, serves=name != NEW)
        yield Row("PUT", kind.path(namespace, "a"), kind.object(namespace, "b"), kind=kind)
        yield Row(
            "PATCH",
            kind.path(namespace, "a"),
            {"metadata": {"name": "b"}},
            "application/merge-patch+json",
            kind=kind,
        )
        yield Row(
            "PATCH",
            kind.path(namespace, "a") + "?fieldManager=m",
            kind.object(namespace, "b"),
            APPLY,
            kind=kind,
        )
        if kind.namespaced:
            other = "team" if namespace == "default" else "default"
            yield Row("POST", collection, kind.object(other, NEW), kind=kind)
            yield Row("PUT", kind.path(namespace, "a"), kind.object(other, "a"), kind=kind)
            yield Row(
                "PATCH",
                kind.path(namespace, NEW) + "?fieldManager=m",
                kind.object(other, NEW),
                APPLY,
                kind=kind,
            )
        listed = {"apiVersion": "v1", "kind": "List", "items": [kind.object(namespace, NEW)]}
        yield Row("POST", collection, listed, kind=kind)
        yield Row(
            "POST",
            collection,
            kind.object(namespace, NEW),
            headers={"x-http-method-override": "DELETE"},
            kind=kind,
        )
        yield Row("POST", kind.path(namespace, "a"), kind.object(namespace, "a"), kind=kind)
        for query in (
            "",
            "?dryRun=All",
            *(f"?{q}" for q in NAME_QUERIES),
            "?labelSelector=none%3Dx",
            "?limit=1",
        ):
            yield Row("DELETE", collection + query, kind=kind)
        yield Row(
            "DELETE",
            collection,
            {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]},
            kind=kind,
        )
        for spelled in spellings(kind.path(namespace, "a")):
            yield Row("DELETE", spelled, kind=kind)
        yield Row("PUT", kind.path(namespace, "a", "watch"), kind.object(namespace, "a"), kind=kind)
    if kind.namespaced:
        yield Row("POST", kind.path(), kind.object("default", NEW), kind=kind)
        yield Row("DELETE", kind.path(), kind=kind)


def subresources(kind: Kind) -> Iterator[Row]:
    for namespace in NAMESPACES if kind.namespaced else ("",):
        for name in (*NAMES, NEW):
            for sub in (*kind.subresources, "nonsense"):
                path = f"{kind.path(namespace, name)}/{sub}"
                if sub in ("exec", "attach", "portforward", "proxy", "log"):
                    tails = (
                        ("", "/", "/x/y", "//", "/../b/proxy")
                        if sub == "proxy"
                        else ("?command=a&stdout=1",)
                    )
                    for tail in tails:
                        for headers in ({}, SPDY, WEBSOCKET):
                            for method in (
                                "GET",
                                "POST",
                                "PUT",
                                "PATCH",
                                "DELETE",
                                "HEAD",
                                "OPTIONS",
                            ):
                                yield Row(method, path + tail, headers=headers, kind=kind)
                    continue
                yield Row("GET", path, kind=kind)
                for method in ("POST", "DELETE"):
                    yield Row(method, path, {} if method == "POST" else None, kind=kind)
                if sub != "nonsense":
                    for dry in ("", "?dryRun=All"):
                        yield Row(
                            "PATCH",
                            path + dry,
                            PATCHES["application/merge-patch+json"],
                            "application/merge-patch+json",
                            kind=kind,
                        )
                        yield Row("PUT", path + dry, kind.object(namespace, name), kind=kind)
                yield Row("GET", f"{path}/more", kind=kind)
                yield Row("GET", f"{path}?watch=1", kind=kind)
                yield Row("GET", f"{kind.path(namespace, name, 'watch')}/{sub}", kind=kind)
                yield Row("GET", f"{kind.path(namespace)}//{sub}", kind=kind)
        if kind is PODS:
            for name in ("http:a:80", "https:b:", "a:80", ":a", "b:81"):
                yield Row("GET", f"{kind.path(namespace, name)}/proxy/", kind=kind)


def others() -> Iterator[Row]:
    for path in (
        "/",
        "/api",
        "/api/v1",
        "/apis",
        "/apis/apps/v1",
        "/healthz",
        "/healthz/ping",
        "/livez/ping",
        "/metrics",
        "/logs",
        "/logs/x",
        "/version",
        "/version/",
        "/openapi/none",
        "/nonsense",
        "/API/v1/secrets",
        "/metrics/",
        "//metrics",
        "/metrics/../api/v1/secrets",
        "/healthz/../metrics",
        "/api/v1/watch",
        "/apis/apps/v1/watch",
        "/api/v1/nonsense",
        "/api/v2/secrets",
        "/apis/none.example.com/v1/things/a",
    ):
        for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS"):
            yield Row(method, path)
