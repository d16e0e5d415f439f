"""apiextensions.k8s.io/v1beta1, which old charts still use."""

from __future__ import annotations

from typing import Any

from tests.apiserver.crd.definitions import (
    CRDS,
    GROUP,
    MERGE,
    WIDGETS,
    established,
    run,
    spec_schema,
    version,
    widget,
)

BETA = "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions"


def old_definition(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": "v1",
            "names": {"plural": "widgets", "kind": "Widget"},
            **spec,
        },
    }


async def test_an_old_definition_is_served_and_reads_well_in_both_versions() -> None:
    async with run() as api:
        schema = spec_schema(a={"type": "string"})
        made = await api.ok(
            "POST",
            BETA,
            old_definition(
                validation={"openAPIV3Schema": schema},
                subresources={"status": {}},
                additionalPrinterColumns=[{"name": "A", "type": "string", "JSONPath": ".spec.a"}],
            ),
        )
        assert (
            made["spec"]["preserveUnknownFields"] is True and made["spec"]["scope"] == "Namespaced"
        )
        crd = await established(api)
        (only,) = crd["spec"]["versions"]
        assert only["schema"] == {"openAPIV3Schema": schema} and only["subresources"] == {
            "status": {}
        }
        assert only["additionalPrinterColumns"] == [
            {"name": "A", "type": "string", "jsonPath": ".spec.a"}
        ]
        again = (await api.ok("GET", f"{BETA}/widgets.{GROUP}"))["spec"]
        assert (
            again["validation"] == {"openAPIV3Schema": schema}
            and "schema" not in again["versions"][0]
        )
        assert (
            again["additionalPrinterColumns"][0]["JSONPath"] == ".spec.a"
            and again["version"] == "v1"
        )
        # Unknown fields stay, values are judged nevertheless.
        kept = await api.ok("POST", WIDGETS, widget("a", spec={"a": "x", "b": 1}))
        assert kept["spec"] == {"a": "x", "b": 1}
        status, _ = await api.call("PATCH", f"{WIDGETS}/a", {"spec": {"a": 5}}, media=MERGE)
        assert status == 422


async def test_what_only_the_new_version_may_is_refused() -> None:
    async with run() as api:
        schema = {"openAPIV3Schema": spec_schema(a={"type": "string", "default": "x"})}
        status, answer = await api.call(
            "POST", BETA, old_definition(validation=schema, preserveUnknownFields=False)
        )
        assert status == 422
        assert (
            "must not be set (cannot set default values in apiextensions.k8s.io/v1beta1 CRDs"
            in answer["message"]
        )


async def test_a_definition_without_a_schema_reports_that_it_is_not_structural() -> None:
    async with run() as api:
        await api.ok("POST", BETA, old_definition())
        crd = await established(api)
        found = {c["type"]: c for c in crd["status"]["conditions"]}["NonStructuralSchema"]
        assert (found["status"], found["reason"]) == ("True", "Violations")
        assert found["message"] == "spec.preserveUnknownFields: Invalid value: true: must be false"
        tidy = {"spec": {"preserveUnknownFields": False, "versions": [version("v1")]}}
        await api.ok("PATCH", f"{CRDS}/widgets.{GROUP}", tidy, media=MERGE)
