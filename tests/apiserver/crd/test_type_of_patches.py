"""Patches that change the kind or apiVersion of a custom object, and its status subresource."""

from __future__ import annotations

import pytest
from tests.apiserver.crd.definitions import GROUP, MERGE, WIDGETS, define, run, version, widget

from transom.machinery.validation.customobject import nested_value


@pytest.mark.parametrize(
    ("patch", "code", "text"),
    [
        (
            {"kind": "Bar"},
            422,
            f'Bar.{GROUP} "a" is invalid: kind: Invalid value: "Bar": must be Widget',
        ),
        (
            {"apiVersion": f"{GROUP}/v2"},
            422,
            f'Widget.{GROUP} "a" is invalid: apiVersion: Invalid value: "{GROUP}/v2": '
            f"must be {GROUP}/v1",
        ),
        (
            {"apiVersion": "v1"},
            422,
            f'Widget "a" is invalid: apiVersion: Invalid value: "v1": must be {GROUP}/v1',
        ),
        (
            {"apiVersion": None},
            500,
            "Internal error occurred: Object 'apiVersion' is missing in 'object has no "
            "apiVersion field'",
        ),
        ({"kind": None}, 422, "Object 'Kind' is missing in '{\"apiVersion\":"),
        ({"kind": 5}, 422, "cannot unmarshal number into Go struct field .kind of type string"),
        ({"apiVersion": "a/b/c"}, 422, "unexpected GroupVersion string: a/b/c"),
    ],
)
async def test_errors_name_what_is_wrong(patch: dict[str, object], code: int, text: str) -> None:
    async with run(release="1.36") as api:
        await define(api, version(subresources={"status": {}}))
        await api.ok("POST", WIDGETS, widget("a"))
        status, problem = await api.call("PATCH", f"{WIDGETS}/a", patch, media=MERGE)
        assert (status, text in problem["message"]) == (code, True), problem["message"]


async def test_a_status_is_read_and_keeps_its_type() -> None:
    async with run(release="1.36") as api:
        await define(api, version(subresources={"status": {}}))
        await api.ok("POST", WIDGETS, widget("a"))
        patch = {"kind": "Bar", "status": {"ready": True}}
        await api.ok("PATCH", f"{WIDGETS}/a/status", patch, media=MERGE)
        shown = await api.ok("GET", f"{WIDGETS}/a/status")
        assert (shown["kind"], shown["status"]) == ("Widget", {"ready": True})
        table = await api.ok(
            "GET", f"{WIDGETS}/a/status", accept="application/json;as=Table;v=v1;g=meta.k8s.io"
        )
        assert table["rows"][0]["cells"][0] == "a"


async def test_one_object_is_no_list() -> None:
    async with run() as api:
        await define(api, version())
        await api.ok("POST", WIDGETS, widget("a"))
        wanted = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
        status, problem = await api.call("GET", f"{WIDGETS}/a", accept=wanted)
        assert (status, problem["message"]) == (500, "content is not a list")


def test_errors_of_paths_name_the_field_that_cannot_be_read() -> None:
    _, problem = nested_value({"spec": 5}, ".spec.replicas", int, 0)
    expected = "5 is of the type int64, expected map[string]interface{}"
    assert problem == f".spec.replicas accessor error: {expected}"
    assert nested_value({"spec": None}, ".spec.replicas", int, 0) == (0, "")
