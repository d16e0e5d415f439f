"""Structs that are owned as a whole, as elements of lists."""

from __future__ import annotations

import pytest

from transom.machinery import codec, managedfields, schema
from transom.machinery.kinds import GVK
from transom.machinery.releases import parse_release
from transom.machinery.schema import schema_table

OWNER = b'{"metadata":{"name":"a","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}'
ACCOUNT = b'{"metadata":{"name":"a"},"secrets":[{"name":"s"}]}'
ENTRY = {".": {}, "f:apiVersion": {}, "f:kind": {}, "f:name": {}, "f:uid": {}}


@pytest.mark.parametrize(
    ("raw", "kind", "path", "release", "owned"),
    [
        (OWNER, "Secret", ("f:metadata", "f:ownerReferences", 'k:{"uid":"u"}'), "1.21", ENTRY),
        (OWNER, "Secret", ("f:metadata", "f:ownerReferences", 'k:{"uid":"u"}'), "1.22", {}),
        (OWNER, "Secret", ("f:metadata", "f:ownerReferences", 'k:{"uid":"u"}'), "1.36", {}),
        (ACCOUNT, "ServiceAccount", ("f:secrets", 'k:{"name":"s"}'), "1.36", {}),
        (
            ACCOUNT,
            "ServiceAccount",
            ("f:secrets", 'k:{"name":"s"}'),
            "1.20",
            {".": {}, "f:name": {}},
        ),
    ],
)
def test_atomic_elements(
    raw: bytes, kind: str, path: tuple[str, ...], release: str, owned: dict[str, object]
) -> None:
    types = schema_table(parse_release(release))
    gvk = GVK("", "v1", kind)
    of = types.lookup(gvk)
    assert isinstance(of, schema.SchemaType)
    obj = codec.decode_object(raw, codec.JSON, gvk, types=types).obj
    (entry,) = managedfields.on_create(obj, of, "m", "v1", "", managedfields.PLAIN_WRITE)
    found = entry["fieldsV1"]
    for name in path:
        found = found[name]
    assert found == owned
