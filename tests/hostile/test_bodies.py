"""Request bodies that are large, deep or full of odd values: the right answer, and no long turn of
the event loop.

The watchdog of the test session fails a test in which a callback uses more than 100 ms of the loop
thread's CPU time.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import orjson
import pytest
from tests.apiserver.harness import Api, start

from transom.http.messages import PeerCertificate
from transom.machinery.objects import MAX_DEPTH

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
JSON, YAML = "application/json", "application/yaml"
MERGE, STRATEGIC, JSON_PATCH, APPLY = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)
LIMIT = 3 * 1024 * 1024
NOBODY = PeerCertificate("nobody", [])

ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
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
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "n", "type": "integer", "jsonPath": ".spec.n"},
                    {"name": "s", "type": "string", "jsonPath": ".spec"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": ANYTHING, "status": ANYTHING},
                    }
                },
            },
            {
                "name": "v2",
                "served": True,
                "storage": False,
                "schema": {"openAPIV3Schema": ANYTHING},
            },
        ],
    },
}


async def start_with_widgets() -> Api:
    api = await start()
    await api.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    for _ in range(200):
        if (await api.call("GET", WIDGETS))[0] == 200:
            return api
        await asyncio.sleep(0.01)
    raise AssertionError("the definition was not served")


def widget(spec: bytes, name: bytes = b"deep", version: bytes = b"v1") -> bytes:
    return (
        b'{"kind":"Widget","apiVersion":"example.com/'
        + version
        + b'","metadata":{"name":"'
        + name
        + b'"},"spec":'
        + spec
        + b"}"
    )


def nested(levels: int) -> bytes:
    """An object of so many levels."""
    return b'{"a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)


# ---- YAML ----

YAMLS = {
    "flow list": b"x: [" + b"a," * (LIMIT // 2 - 40) + b"]",
    "block list": b"x:\n" + b"- 1\n" * (LIMIT // 4 - 10),
    "map": b"x:\n" + b"".join(b" k%d: 1\n" % i for i in range(LIMIT // 13)),
    "brackets": b"[" * 100_000,
    "brackets, all of it": b"[" * LIMIT,
    "dashes": b"- " * (LIMIT // 2),
    "aliases": b"x: &x [a]\ny: [" + b"*x," * (LIMIT // 3 - 40) + b"]",
    "bomb": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(
        b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(20)
    ),
}


@pytest.mark.parametrize("document", YAMLS.values(), ids=YAMLS)
async def test_yaml_of_an_account_without_permissions(document: bytes) -> None:
    api = await start()
    pending = asyncio.ensure_future(api.call("POST", REVIEWS, document, media=YAML, peer=NOBODY))
    while not pending.done():
        status, _ = await api.call("GET", CONFIG_MAPS)
        assert status == 200
        await asyncio.sleep(0.005)
    status, answer = await pending
    assert status in (400, 422), answer


# ---- values ----

VALUES = {
    "20 digits": b"99999999999999999999",
    "negative": b"-99999999999999999999",
    "2^64": b"18446744073709551616",
    "400 digits": b"1" + b"0" * 400,
    "20000 digits": b"9" * 20_000,
    "exponent": b"1e999999",
    "overflow": b"1e400",
    "underflow": b"1e-999999",
    "many decimals": b"0." + b"1" * 5000,
    "minus zero": b"-0",
    "nan": b"NaN",
    "half pair": b'"\\ud800"',
    "other half": b'"\\udc00x"',
    "bad utf-8": b'"\xff\xfe"',
    "surrogate bytes": b'"\xed\xa0\x80"',
    "escaped nul": b'"a\\u0000b"',
    "nul": b'"a\x00b"',
    "bom": b'"\xef\xbb\xbf"',
    "100 levels": nested(100),
    "248 levels": nested(248),
    "300 lists": b"[" * 300 + b"]" * 300,
    "1000 levels": nested(1000),
    "9990 lists": b"[" * 9990 + b"]" * 9990,
    "20000 lists": b"[" * 20_000 + b"]" * 20_000,
    "unclosed": b"[" * 100_000,
    "duplicate keys": b'{"a":1,"a":2}',
    "null": b"null",
    "list": b"[null]",
}
PLACES: list[tuple[str, str, str, bytes]] = [
    ("POST", CONFIG_MAPS, JSON, b'{"metadata":{"name":"z","generation":%V}}'),
    ("POST", CONFIG_MAPS, JSON, b'{"metadata":{"name":"z","labels":{"a":%V}}}'),
    ("POST", CONFIG_MAPS, JSON, b'{"metadata":{"name":"z"},"unknown":%V}'),
    ("POST", CONFIG_MAPS, YAML, b'{"metadata":{"name":"z"},"data":{"a":%V}}'),
    (
        "POST",
        CONFIG_MAPS + "?fieldValidation=Strict",
        JSON,
        b'{"metadata":{"name":"z"},"unknown":%V}',
    ),
    (
        "POST",
        CONFIG_MAPS,
        JSON,
        b'{"metadata":{"name":"z","managedFields":[{"manager":"x","operation":"Update","apiVersion":"v1",'
        b'"fieldsType":"FieldsV1","time":"2020-01-01T00:00:00Z","fieldsV1":{"f:data":%V}}]}}',
    ),
    ("POST", CONFIG_MAPS, JSON, b"%V"),
    ("POST", CONFIG_MAPS, YAML, b"%V"),
    ("PUT", CONFIG_MAPS + "/a", JSON, b'{"metadata":{"name":"a"},"data":%V}'),
    ("PATCH", CONFIG_MAPS + "/a", MERGE, b'{"data":{"x":%V}}'),
    ("PATCH", CONFIG_MAPS + "/a", MERGE, b"%V"),
    ("PATCH", CONFIG_MAPS + "/a", STRATEGIC, b'{"data":{"x":%V}}'),
    ("PATCH", CONFIG_MAPS + "/a", STRATEGIC, b"%V"),
    ("PATCH", CONFIG_MAPS + "/a", JSON_PATCH, b'[{"op":"add","path":"/data","value":%V}]'),
    ("PATCH", CONFIG_MAPS + "/a", JSON_PATCH, b'[{"op":"test","path":%V,"value":1}]'),
    (
        "PATCH",
        CONFIG_MAPS + "/a?fieldManager=m&force=true",
        APPLY,
        b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"x":%V}}',
    ),
    ("DELETE", CONFIG_MAPS + "/none", JSON, b'{"gracePeriodSeconds":%V}'),
    ("DELETE", CONFIG_MAPS + "/none", JSON, b"%V"),
    ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", JSON, b'{"spec":{"token":%V}}'),
    (
        "POST",
        "/api/v1/namespaces/default/services",
        JSON,
        b'{"metadata":{"name":"z"},"spec":{"ports":[{"port":1,"targetPort":%V}]}}',
    ),
    (
        "POST",
        "/api/v1/namespaces/default/resourcequotas",
        JSON,
        b'{"metadata":{"name":"z"},"spec":{"hard":{"cpu":%V}}}',
    ),
    (
        "POST",
        "/apis/apps/v1/namespaces/default/controllerrevisions",
        JSON,
        b'{"metadata":{"name":"z"},"revision":1,"data":%V}',
    ),
    ("POST", WIDGETS, JSON, widget(b'{"n":%V}', b"z")),
    ("POST", WIDGETS, YAML, widget(b'{"n":%V}', b"z")),
    ("POST", WIDGETS.replace("v1", "v2"), JSON, widget(b'{"n":%V}', b"z", b"v2")),
    ("PATCH", WIDGETS + "/w", MERGE, b'{"spec":{"n":%V}}'),
    ("PATCH", WIDGETS + "/w/status", MERGE, b'{"status":{"n":%V}}'),
    ("PATCH", WIDGETS + "/w", JSON_PATCH, b'[{"op":"add","path":"/spec/n","value":%V}]'),
    ("PATCH", WIDGETS + "/w?fieldManager=m&force=true", APPLY, widget(b'{"n":%V}', b"w")),
]
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


async def can_be_read(api: Api, lists: list[str]) -> None:
    for path in lists:
        for accept in (
            JSON,
            TABLE,
            YAML,
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        ):
            status, answer = await api.call("GET", path, accept=accept)
            assert status == 200, (path, accept, answer)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
async def test_odd_values_get_an_answer_of_kubernetes_and_leave_lists_readable(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    api = await start_with_widgets()
    await api.ok("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    await api.ok("POST", WIDGETS, widget(b"{}", b"w"))
    lists = [CONFIG_MAPS, WIDGETS, WIDGETS.replace("v1", "v2")]
    for method, target, media, template in PLACES:
        status, answer = await api.call(method, target, template.replace(b"%V", value), media=media)
        assert "Internal error" not in str(answer), (method, target, template, answer)
        if status == 201 and not target.startswith("/apis/auth"):
            await api.ok(
                "PATCH",
                f"{target.partition('?')[0]}/z",
                {"metadata": {"labels": {"q": "r"}}},
                media=MERGE,
            )
            await can_be_read(api, lists)
            await api.ok("DELETE", f"{target.partition('?')[0]}/z")
    await can_be_read(api, lists)
    assert not [r for r in caplog.records if r.exc_info], "a request ended in a traceback"


LONG = "9" * 5000
NUMBERS = [
    ("GET", f"{CONFIG_MAPS}?limit={LONG}", None, 400),
    ("GET", f"{CONFIG_MAPS}?resourceVersion={LONG}", None, 500),
    ("GET", f"{CONFIG_MAPS}?timeoutSeconds={LONG}", None, 400),
    ("DELETE", f"{CONFIG_MAPS}/none?gracePeriodSeconds={LONG}", None, 400),
    ("POST", CONFIG_MAPS, {"metadata": {"name": "b", "resourceVersion": LONG}}, 500),
    (
        "POST",
        "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets",
        {"metadata": {"name": "d"}, "spec": {"minAvailable": LONG + "%", "selector": {}}},
        422,
    ),
]


@pytest.mark.parametrize(
    ("method", "target", "body", "expected"), NUMBERS, ids=[str(n) for n in range(len(NUMBERS))]
)
async def test_numbers_with_thousands_of_digits(
    method: str, target: str, body: Any, expected: int
) -> None:
    api = await start()
    status, answer = await api.call(method, target, body)
    assert status == expected, answer
    assert "Internal error" not in str(answer)


# ---- depth ----


async def test_whatever_is_accepted_can_be_read_changed_and_deleted() -> None:
    api = await start_with_widgets()
    accepted = 0
    for levels in range(MAX_DEPTH - 12, MAX_DEPTH + 2):
        watch = await api.watch(WIDGETS + "?watch=1")
        for version in (b"v1", b"v2"):
            target = WIDGETS.replace("v1", version.decode())
            status, answer = await api.call("POST", target, widget(nested(levels), version=version))
            if status != 201:
                assert (
                    status == 400 and f"exceeded max depth of {MAX_DEPTH}" in answer["message"]
                ), answer
                continue
            accepted = levels
            await can_be_read(api, [WIDGETS, WIDGETS.replace("v1", "v2")])
            for other in (WIDGETS, WIDGETS.replace("v1", "v2")):
                await api.ok(
                    "PATCH",
                    f"{other}/deep",
                    {"metadata": {"labels": {"a": str(levels)}}},
                    media=MERGE,
                )
                live = await api.ok("GET", f"{other}/deep")
                live["metadata"]["annotations"] = {"b": str(levels)}
                await api.ok("PUT", f"{other}/deep", live)
            patch = [{"op": "add", "path": "/metadata/labels/c", "value": "d"}]
            await api.ok("PATCH", f"{WIDGETS}/deep", patch, media=JSON_PATCH)
            await api.ok("PATCH", f"{WIDGETS}/deep/status", {"status": {"x": 1}}, media=MERGE)
            assert watch.events()
            await api.ok("DELETE", f"{WIDGETS}/deep")
    assert accepted > MAX_DEPTH - 12


async def test_an_object_cannot_grow_beyond_the_limit() -> None:
    api = await start_with_widgets()
    await api.ok("POST", WIDGETS, widget(nested(100)))
    path = "/spec" + "/a" * 99
    for media, body in (
        (
            JSON_PATCH,
            b'[{"op":"add","path":"' + path.encode() + b'/b","value":' + nested(110) + b"}]",
        ),
        (JSON_PATCH, b'[{"op":"copy","from":"/spec","path":"' + path.encode() + b'/b"}]'),
        (MERGE, b'{"spec":' + nested(220) + b"}"),
    ):
        status, answer = await api.call("PATCH", f"{WIDGETS}/deep", body, media=media)
        assert status == 400, answer
        assert "exceeded max depth" in answer["message"]
    steps = [
        {"op": "move", "from": "/spec", "path": "/x"},
        {"op": "add", "path": "/spec", "value": {}},
        {"op": "move", "from": "/x", "path": "/spec/x"},
    ]
    status, answer = await api.call("PATCH", f"{WIDGETS}/deep", steps * 3000, media=JSON_PATCH)
    assert status == 400, answer
    await can_be_read(api, [WIDGETS])
    await api.ok("DELETE", f"{WIDGETS}/deep")


# ---- size ----


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "z"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


LARGE: dict[str, tuple[str, dict[str, Any]]] = {
    "spread constraints": (
        "/api/v1/namespaces/default/pods",
        pod(
            topologySpreadConstraints=[
                {"maxSkew": 1, "topologyKey": f"k{i}", "whenUnsatisfiable": "DoNotSchedule"}
                for i in range(20_000)
            ]
        ),
    ),
    "bad rules": (
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
        {"metadata": {"name": "z"}, "rules": [{} for _ in range(300_000)]},
    ),
    "bad addresses": (
        "/api/v1/namespaces/default/endpoints",
        {
            "metadata": {"name": "z"},
            "subsets": [
                {"ports": [{"port": 1}], "addresses": [{"ip": "x"} for _ in range(50_000)]}
            ],
        },
    ),
    "bad topology keys": (
        "/apis/storage.k8s.io/v1/csinodes",
        {
            "metadata": {"name": "z"},
            "spec": {
                "drivers": [
                    {"name": "d", "nodeID": "n", "topologyKeys": [f"-{i}" for i in range(20_000)]}
                ]
            },
        },
    ),
}


@pytest.mark.parametrize(("target", "body"), LARGE.values(), ids=LARGE)
async def test_lists_of_thousands_of_items_are_validated_in_linear_time(
    target: str, body: dict[str, Any]
) -> None:
    api = await start()
    await api.ok(
        "POST",
        "/api/v1/namespaces/default/serviceaccounts",
        {
            "metadata": {"name": "default"},
            "automountServiceAccountToken": False,
            "secrets": [{"name": "t"}],
        },
    )
    before = time.process_time()
    answer = await api.send("POST", target, orjson.dumps(body))
    assert answer.status in (201, 422), answer.body[:500]
    assert time.process_time() - before < 20
    assert len(answer.body) < 3 * LIMIT
