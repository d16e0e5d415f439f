"""Large lists, encoded while the client reads: the same bytes as lists that are encoded at once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.harness import Api, start

from transom.apiserver.core import lists
from transom.apiserver.serving import listbody, responses
from transom.http.messages import HttpResponse, LazyBody, body_bytes
from transom.store.api import StoreRecord

CM = "/api/v1/namespaces/default/configmaps"
FORMS = {
    "json": ("application/json", ""),
    "pretty": ("application/json", "?pretty=true"),
    "yaml": ("application/yaml", ""),
    "protobuf": ("application/vnd.kubernetes.protobuf", ""),
    "table": ("application/json;as=Table;v=v1;g=meta.k8s.io", ""),
    "table with objects": ("application/json;as=Table;v=v1;g=meta.k8s.io", "?includeObject=Object"),
    "metadata": ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", ""),
    "metadata protobuf": (
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "",
    ),
    "page": ("application/json", "?limit=70"),
}


async def fill(api: Api, count: int) -> None:
    for number in range(count):
        data = {
            "text": "line\n <&>" * (number % 5),
            "large": "x" * (300_000 if number == 40 else 1),
        }
        await api.ok(
            "POST",
            CM,
            {"metadata": {"name": f"c{number:03}", "labels": {"n": str(number)}}, "data": data},
        )


@pytest.mark.parametrize(("accept", "query"), FORMS.values(), ids=FORMS.keys())
async def test_a_lazy_list_has_the_bytes_of_a_whole_one(
    accept: str, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = await start()
    await fill(api, 20 if "yaml" in accept else 80)
    for limit in ("_BIG", "_BIG_DECODED", "_BIG_YAML", "_BIG_BYTES"):
        monkeypatch.setattr(responses, limit, 10**9)
    whole = await api.send("GET", CM + query, accept=accept)
    for limit in ("_BIG", "_BIG_DECODED", "_BIG_YAML"):
        monkeypatch.setattr(responses, limit, 5)
    monkeypatch.setattr(lists, "_SHARED_FROM", 5)
    monkeypatch.setattr(listbody, "_WHOLE", 1000)
    lazy = await api.send("GET", CM + query, accept=accept)
    assert isinstance(whole, HttpResponse) and isinstance(lazy, HttpResponse)
    assert isinstance(whole.body, bytes)
    assert not isinstance(lazy.body, bytes | list)
    assert body_bytes(lazy.body) == whole.body
    assert lazy.body.size in (None, len(whole.body))
    if accept == "application/json" and "pretty" not in query:
        assert lazy.body.size == len(whole.body)
    for size in (100, 5000):
        assert read(lazy.body, size) == whole.body


def read(body: LazyBody, size: int) -> bytes:
    reader = body.open()
    out: list[Any] = []
    while piece := reader.read(size):
        out.append(piece)
    return b"".join(out)


async def test_a_list_stays_what_it_was_when_it_was_asked_for() -> None:
    api = await start()
    await fill(api, 600)
    answer = await api.send("GET", CM)
    before = body_bytes((await api.send("GET", CM)).body)
    reader = answer.body.open()
    first = bytes(reader.read(5000))
    for number in range(0, 600, 7):
        await api.ok("DELETE", f"{CM}/c{number:03}")
    rest = []
    while piece := reader.read(5000):
        rest.append(bytes(piece))
    assert first + b"".join(rest) == before


@pytest.mark.parametrize(
    "values", [[], [b"1"], [b"1", b"22" * 50], [b"22" * 50, b"1", b"", b"3" * 99]]
)
@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_pieces_of_any_size_make_the_same_body(values: list[bytes], size: int) -> None:
    records = [StoreRecord(str(i), value, 1, 1) for i, value in enumerate(values)]
    body = listbody.ListBody(records, b"[", b"]")
    wanted = b"[" + b",".join(values) + b"]"
    assert read(body, size) == wanted
    assert body.size == len(wanted)
