"""Content negotiation: the format for an Accept header, and protobuf in bodies, responses, errors
and watches.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.harness import start

from transom.apiserver.serving.negotiate import JSON, PROTOBUF, YAML, OutputForm, negotiate
from transom.http.messages import HttpResponse, StreamResponse
from transom.machinery import codec, protobuf
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK
from transom.machinery.releases import parse_release
from transom.machinery.schema import schema_table

CM = "/api/v1/namespaces/default/configmaps"
CONFIG_MAP = GVK("", "v1", "ConfigMap")
STATUS = GVK("", "v1", "Status")
META = "g=meta.k8s.io;v=v1"
PARTIAL = f"as=PartialObjectMetadata;{META}"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", OutputForm()),
        ("application/json", OutputForm()),
        ("text/html, */*;q=0.1", OutputForm()),
        ("application/yaml", OutputForm(YAML)),
        (PROTOBUF, OutputForm(PROTOBUF)),
        (f"{PROTOBUF};stream=watch", OutputForm(PROTOBUF)),
        # JSON is cheaper, and those who take it as well do not mind
        (f"{PROTOBUF}, application/json", OutputForm()),
        (f"{PROTOBUF},*/*", OutputForm()),
        (f"{PROTOBUF},application/yaml", OutputForm(PROTOBUF)),
        (f"application/yaml,{PROTOBUF}", OutputForm(YAML)),
        (
            f"{PROTOBUF};{PARTIAL},application/json;{PARTIAL},application/json",
            OutputForm(JSON, "PartialObjectMetadata"),
        ),
        # another thing in JSON is not a substitute
        (f"{PROTOBUF};{PARTIAL},application/json", OutputForm(PROTOBUF, "PartialObjectMetadata")),
        (f"{PROTOBUF};as=Table;{META},application/json", OutputForm()),
    ],
)
def test_the_form_of_an_answer(accept: str, form: OutputForm) -> None:
    assert negotiate(accept) == form


_ACCEPTED = (
    "only the following media types are accepted: application/json, application/yaml, " + PROTOBUF
)


@pytest.mark.parametrize(
    ("accept", "custom", "message"),
    [
        ("text/html", False, "406: Not Acceptable"),
        ("application/*", False, "406: Not Acceptable"),
        (f"{PROTOBUF};as=Table;{META}", False, _ACCEPTED),
        (f"{PROTOBUF};as=Pod;{META}", False, _ACCEPTED),
        (PROTOBUF, True, _ACCEPTED),
        ("text/html", True, _ACCEPTED),
    ],
)
def test_unsupported_media_types(accept: str, custom: bool, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        negotiate(accept, custom=custom)
    assert (caught.value.code, caught.value.message) == (406, message)


def test_custom_kinds_have_metadata_in_protobuf() -> None:
    assert negotiate(f"{PROTOBUF};{PARTIAL}", custom=True) == OutputForm(
        PROTOBUF, "PartialObjectMetadata"
    )
    assert negotiate(f"{PROTOBUF}, application/*", custom=True) == OutputForm()


# --- on the server ----------


def _body(answer: Any) -> bytes:
    assert isinstance(answer, HttpResponse)
    assert dict(answer.headers)[b"Content-Type"] == PROTOBUF.encode()
    return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)


def _read(data: bytes, gvk: GVK) -> Any:
    return codec.decode_object(data, PROTOBUF, gvk).obj


def _config_map(name: str) -> bytes:
    return protobuf.encode_protobuf({"metadata": {"name": name}, "data": {"a": "<b>"}}, CONFIG_MAP)


async def test_written_and_read_in_protobuf() -> None:
    api = await start()
    made = await api.send("POST", CM, _config_map("c"), media=PROTOBUF, accept=PROTOBUF)
    assert made.status == 201
    stored = await api.ok("GET", CM + "/c")
    assert stored["data"] == {"a": "<b>"}
    assert _read(_body(made), CONFIG_MAP) == stored
    assert _read(_body(await api.send("GET", CM + "/c", accept=PROTOBUF)), CONFIG_MAP) == stored
    found = _read(_body(await api.send("GET", CM, accept=PROTOBUF)), GVK("", "v1", "ConfigMapList"))
    assert [
        item["metadata"]["name"] for item in found["items"] if "a" in (item.get("data") or ())
    ] == ["c"]
    partial = await api.send("GET", CM + "/c", accept=f"{PROTOBUF};{PARTIAL}")
    assert (
        _read(_body(partial), GVK("meta.k8s.io", "v1", "PartialObjectMetadata"))["metadata"]
        == stored["metadata"]
    )


async def test_errors_and_options_in_protobuf() -> None:
    api = await start()
    await api.ok("POST", CM, _config_map("c"), media=PROTOBUF)
    missing = await api.send("GET", CM + "/none", accept=PROTOBUF)
    status = _read(_body(missing), STATUS)
    assert (missing.status, status["reason"], status["details"]["name"]) == (
        404,
        "NotFound",
        "none",
    )
    code, answer = await api.call("POST", CM, b"k8s\x00\x0a", media=PROTOBUF)
    assert (code, answer["reason"]) == (400, "BadRequest")
    options = GVK("", "v1", "DeleteOptions")
    wrong = protobuf.encode_protobuf({"preconditions": {"uid": "other"}}, options)
    assert (await api.call("DELETE", CM + "/c", wrong, media=PROTOBUF))[0] == 409
    right = protobuf.encode_protobuf({"gracePeriodSeconds": 0}, options)
    assert (await api.call("DELETE", CM + "/c", right, media=PROTOBUF))[0] == 200


def _frames(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Type and object of each event, out of chunks and frames."""
    content = b""
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        content += raw[: int(size, 16)]
        raw = raw[int(size, 16) + 2 :]
    out = []
    while content:
        size = int.from_bytes(content[:4], "big")
        event, content = content[4 : 4 + size], content[4 + size :]
        out.append((event[2 : 2 + event[1]], event[event.index(protobuf.MAGIC) :]))
    return out


async def test_watched_in_protobuf() -> None:
    api = await start()
    target = (
        CM + "?watch=1&fieldSelector=metadata.name%3Dc&allowWatchBookmarks=true&timeoutSeconds=10"
    )
    accept = f"{PROTOBUF};stream=watch"
    answer = await api.send("GET", target, accept=accept)
    assert isinstance(answer, StreamResponse)
    assert dict(answer.headers)[b"Content-Type"] == accept.encode()
    whole = await api.watch(target, accept=accept)
    only_metadata = await api.watch(target, accept=f"{PROTOBUF};{PARTIAL}")
    stored = await api.ok("POST", CM, _config_map("c"), media=PROTOBUF)
    ((kind, data),) = _frames(whole.raw)
    assert (kind, _read(data, CONFIG_MAP)) == (b"ADDED", stored)
    ((kind, data),) = _frames(only_metadata.raw)
    assert (
        _read(data, GVK("meta.k8s.io", "v1", "PartialObjectMetadata"))["metadata"]
        == stored["metadata"]
    )
    whole.raw = b""
    api.clock.advance(9)
    ((kind, data),) = _frames(whole.raw)
    assert (kind, int(_read(data, CONFIG_MAP)["metadata"]["resourceVersion"]) >= 0) == (
        b"BOOKMARK",
        True,
    )


async def test_discovery_in_protobuf() -> None:
    api = await start()
    resources = _body(await api.send("GET", "/apis/apps/v1", accept=PROTOBUF))
    found = _read(resources, GVK("", "v1", "APIResourceList"))
    assert "get" in next(r for r in found["resources"] if r["name"] == "deployments")["verbs"]
    assert (
        protobuf.unwrap_envelope(_body(await api.send("GET", "/api", accept=PROTOBUF))).kind
        == "APIVersions"
    )
    assert (await api.send("GET", "/version", accept=PROTOBUF)).status == 406


async def test_kinds_and_fields_of_a_later_release_in_protobuf() -> None:
    """A DeviceClass exists since 1.34, `extendedResourceName` since 1.35."""
    api = await start(release="1.36")
    types = schema_table(parse_release("1.36"))
    gvk = GVK("resource.k8s.io", "v1", "DeviceClass")
    path = "/apis/resource.k8s.io/v1/deviceclasses"
    watch = await api.watch(path + "?watch=1", accept=f"{PROTOBUF};stream=watch")
    device_class = {
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "a.b/gpu"},
    }
    raw = protobuf.encode_protobuf(device_class, gvk, types)
    made = await api.send("POST", path, raw, media=PROTOBUF, accept=PROTOBUF)
    assert made.status == 201
    stored = await api.ok("GET", path + "/gpu")
    assert stored["spec"] == device_class["spec"]

    def read(data: bytes, kind: GVK = gvk) -> Any:
        return codec.decode_object(data, PROTOBUF, kind, types=types).obj

    assert read(_body(made)) == stored
    ((_, event),) = _frames(watch.raw)
    assert read(event) == stored
    for query in ("", "?limit=1"):
        listed = _body(await api.send("GET", path + query, accept=PROTOBUF))
        (item,) = read(listed, gvk._replace(kind="DeviceClassList"))["items"]
        assert item["spec"] == stored["spec"]
