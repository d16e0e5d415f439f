"""Evictions and bindings: the options of an eviction count like those of a delete."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.apiserver.harness import start

from transom.machinery import codec, protobuf
from transom.machinery.kinds import GVK

DEFAULT = "/api/v1/namespaces/default"


@pytest.mark.parametrize(
    ("query", "options", "status", "text"),
    [
        (
            "",
            {"propagationPolicy": "X"},
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: '
            '"X": supported values: "Foreground", "Background", "Orphan", "nil"',
        ),
        (
            "?dryRun=All",
            {"dryRun": ["Some"]},
            500,
            "Non-matching dry-run options in request and content: [All] and [Some]",
        ),
        ("?dryRun=All", {}, 201, None),
        ("", {"dryRun": ["All"]}, 201, None),
    ],
)
async def test_options_of_an_eviction(
    query: str, options: Any, status: int, text: str | None
) -> None:
    api = await start()
    await api.ok("POST", DEFAULT + "/serviceaccounts", {"metadata": {"name": "default"}})
    await api.ok(
        "POST",
        DEFAULT + "/pods",
        {
            "metadata": {"name": "p"},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [{"name": "c", "image": "i"}],
            },
        },
    )
    eviction = {
        "apiVersion": "policy/v1beta1",
        "kind": "Eviction",
        "metadata": {"name": "p"},
        "deleteOptions": options,
    }
    got, answer = await api.call("POST", DEFAULT + "/pods/p/eviction" + query, eviction)
    assert (got, answer.get("message")) == (status, text)
    assert (await api.call("GET", DEFAULT + "/pods/p"))[0] == 200


@pytest.mark.parametrize("media", ["application/json", codec.PROTOBUF])
@pytest.mark.parametrize("version", ["v1beta1", "v1"])
async def test_versions_and_forms_of_an_eviction(version: str, media: str) -> None:
    api = await start()
    await api.ok("POST", DEFAULT + "/serviceaccounts", {"metadata": {"name": "default"}})
    await api.ok(
        "POST",
        DEFAULT + "/pods",
        {
            "metadata": {"name": "p"},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [{"name": "c", "image": "i"}],
            },
        },
    )
    kind = GVK("policy", version, "Eviction")
    eviction = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "p"}}
    body = (
        protobuf.encode_protobuf(eviction, kind)
        if media == codec.PROTOBUF
        else orjson.dumps(eviction)
    )
    assert (await api.call("POST", DEFAULT + "/pods/p/eviction", body, media=media))[0] == 201
    assert (await api.call("GET", DEFAULT + "/pods/p"))[0] == 404


async def test_a_binding_names_its_pod() -> None:
    api = await start()
    status, problem = await api.call("POST", DEFAULT + "/bindings", {"target": {"name": "n"}})
    assert (status, problem["message"]) == (400, "Name parameter required.")


@pytest.mark.parametrize(
    ("release", "metadata", "status"),
    [
        ("1.22", {"uid": "other"}, 201),
        ("1.23", {"uid": "other"}, 409),
        ("1.36", {"resourceVersion": "1"}, 409),
        ("1.36", {}, 201),
    ],
)
async def test_preconditions_of_a_binding(
    release: str, metadata: dict[str, str], status: int
) -> None:
    api = await start(release=release)
    await api.ok("POST", DEFAULT + "/serviceaccounts", {"metadata": {"name": "default"}})
    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "i"}],
        },
    }
    made = await api.ok("POST", DEFAULT + "/pods", pod)
    binding = {"metadata": {"name": "p", **metadata}, "target": {"kind": "Node", "name": "n"}}
    got, answer = await api.call("POST", DEFAULT + "/pods/p/binding", binding)
    assert got == status
    if status == 409:
        field, given = next(iter(metadata.items()))
        what = {"uid": "UID", "resourceVersion": "ResourceVersion"}[field]
        assert answer["message"] == (
            'Operation cannot be fulfilled on pods "p": StorageError: invalid object, Code: 4, '
            "Key: /registry/pods/default/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition "
            f"failed: {what} in precondition: {given}, {what} in object meta: "
            f"{made['metadata'][field]}"
        )
