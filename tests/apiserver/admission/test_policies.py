"""Validating and mutating admission policies, from their definition to the answer."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.admission.support import MERGE, NS, run
from tests.apiserver.harness import Api

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = f"{NS}/configmaps"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["configmaps"],
}


async def define(
    api: Api,
    spec: dict[str, Any],
    binding: dict[str, Any] | None = None,
    *,
    mutating: bool = False,
    constraints: dict[str, Any] | None = None,
) -> None:
    kind = "mutating" if mutating else "validating"
    match = {"resourceRules": [RULE], **(constraints or {})}
    policy = {"metadata": {"name": "p"}, "spec": {"matchConstraints": match, **spec}}
    await api.ok("POST", f"{GROUP}/{kind}admissionpolicies", policy)
    bound = {"policyName": "p", **({} if mutating else {"validationActions": ["Deny"]})}
    body = {"metadata": {"name": "b"}, "spec": {**bound, **(binding or {})}}
    await api.ok("POST", f"{GROUP}/{kind}admissionpolicybindings", body)


def checks(*expressions: str, **more: Any) -> dict[str, Any]:
    return {"validations": [{"expression": text} for text in expressions], **more}


def config(name: str = "c", **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def message(api: Api, obj: dict[str, Any], target: str = MAPS) -> str:
    status, answer = await api.call("POST", target, obj)
    return "" if status == 201 else str(answer["message"])


PREFIX = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (checks("object.data.a == '1'"), ""),
        (checks("object.data.a == '2'"), "failed expression: object.data.a == '2'"),
        (
            {
                "validations": [
                    {"expression": "false", "messageExpression": "'got ' + object.data.a"}
                ]
            },
            "got 1",
        ),
        (
            checks("object.data.none == ''"),
            "expression 'object.data.none == ''' resulted in error: no such key: none",
        ),
        (checks("object.data.none == ''", failurePolicy="Ignore"), ""),
        (
            checks(
                "variables.b == 3",
                variables=[
                    {"name": "a", "expression": "size(object.data)"},
                    {"name": "b", "expression": "variables.a + 1"},
                ],
            ),
            "failed expression: variables.b == 3",
        ),
        (
            checks("variables.a", variables=[{"name": "a", "expression": "object.data.no == ''"}]),
            "expression 'variables.a' resulted in error: composited variable \"a\" fails to "
            "evaluate: no such key: no",
        ),
        (
            checks("false", matchConditions=[{"name": "no", "expression": "object.data.a == '2'"}]),
            "",
        ),
        (
            checks("false", matchConditions=[{"name": "no", "expression": "object.data.x == '2'"}]),
            "expression 'object.data.x == '2'' resulted in error: no such key: x",
        ),
        (checks("namespaceObject.metadata.name == 'default'"), ""),
        (checks("request.operation == 'CREATE' && request.namespace == 'default'"), ""),
        (checks("oldObject == null"), ""),
        (checks("authorizer.requestResource.check('delete').allowed()"), ""),
        (
            checks(
                "authorizer.serviceAccount('default', 'x').group('').resource('pods')"
                ".namespace('default').check('get').allowed()"
            ),
            "failed expression: authorizer.serviceAccount('default', 'x').group('')"
            ".resource('pods').namespace('default').check('get').allowed()",
        ),
        (
            checks("[1,2,3,4,5,6,7,8,9,10].all(a, " * 7 + "a > 0" + ")" * 7),
            "expression '"
            + "[1,2,3,4,5,6,7,8,9,10].all(a, " * 7
            + "a > 0"
            + ")" * 7
            + "' resulted in error: operation cancelled: actual cost limit exceeded",
        ),
    ],
)
async def test_a_failed_validation_denies_the_request(spec: dict[str, Any], expected: str) -> None:
    async with run(release="1.36") as api:
        await define(api, spec)
        found = await message(api, config(a="1"))
    if not expected:
        assert found == ""
    else:
        assert found == f'configmaps "c" is forbidden: {PREFIX}{expected}'


@pytest.mark.parametrize(
    ("constraints", "denied"),
    [
        ({}, True),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "x"}}}, False),
        ({"excludeResourceRules": [{**RULE, "resourceNames": ["c"]}]}, False),
        ({"excludeResourceRules": [{**RULE, "resourceNames": ["d"]}]}, True),
        ({"resourceRules": [{**RULE, "resourceNames": ["d"]}]}, False),
    ],
)
async def test_constraints_select_requests(constraints: dict[str, Any], denied: bool) -> None:
    async with run(release="1.36") as api:
        await define(api, checks("false"), constraints=constraints)
        assert bool(await message(api, config())) is denied


async def test_equivalent_matches_other_versions_and_exact_does_not() -> None:
    rule = {**RULE, "apiGroups": ["autoscaling"], "apiVersions": ["v1"]}
    rule["resources"] = ["horizontalpodautoscalers"]
    scaler = {
        "metadata": {"name": "h"},
        "spec": {
            "maxReplicas": 2,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        },
    }
    target = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    for policy, denied in (("Equivalent", True), ("Exact", False)):
        async with run(release="1.36") as api:
            spec = checks("request.resource.version == 'v2'")
            constraints = {"resourceRules": [rule], "matchPolicy": policy}
            await define(api, spec, constraints=constraints)
            assert bool(await message(api, scaler, target)) is denied


async def test_warn_and_audit_allow_the_request() -> None:
    async with run(release="1.36") as api:
        await define(api, checks("false"), {"validationActions": ["Warn", "Audit"]})
        status, _ = await api.call("POST", MAPS, config())
        assert status == 201


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ({"name": "limits", "namespace": "default"}, "failed expression: params.data.max == '2'"),
        ({"selector": {"matchLabels": {"use": "no"}}}, ""),
        (
            {"name": "none", "parameterNotFoundAction": "Deny"},
            "failed to configure binding: no params found for policy binding with `Deny` "
            "parameterNotFoundAction",
        ),
        ({"name": "none", "parameterNotFoundAction": "Allow"}, ""),
    ],
)
async def test_parameters_come_from_objects(ref: dict[str, Any], expected: str) -> None:
    async with run(release="1.36") as api:
        await api.ok("POST", MAPS, config("limits", max="1"))
        spec = checks("params.data.max == '2'", paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
        ref = {"parameterNotFoundAction": "Allow", **ref}
        await define(api, spec, {"paramRef": ref})
        found = await message(api, config())
        assert found == (f'configmaps "c" is forbidden: {PREFIX}{expected}' if expected else "")


async def test_a_policy_without_binding_or_in_an_old_release_has_no_effect() -> None:
    async with run(release="1.36") as api:
        body = {
            "metadata": {"name": "p"},
            "spec": {"matchConstraints": {"resourceRules": [RULE]}, **checks("false")},
        }
        await api.ok("POST", f"{GROUP}/validatingadmissionpolicies", body)
        assert await message(api, config()) == ""
    async with run(release="1.29") as api:
        status, _ = await api.call("POST", f"{GROUP}/validatingadmissionpolicies", body)
        assert status == 404


def applies(expression: str, **more: Any) -> dict[str, Any]:
    mutation = {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": expression},
    }
    return {"reinvocationPolicy": "Never", "mutations": [mutation], **more}


def patches(expression: str, **more: Any) -> dict[str, Any]:
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
    return {"reinvocationPolicy": "Never", "mutations": [mutation], **more}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (applies("Object{data: {'b': object.data.a + '!'}}"), {"a": "1", "b": "1!"}),
        (
            patches(
                "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('b'), value: '2'}]"
            ),
            {"a": "1", "b": "2"},
        ),
        (
            patches(
                "[JSONPatch{op: 'test', path: '/data/a', value: 'x'}, "
                "JSONPatch{op: 'remove', path: '/data/a'}]"
            ),
            {"a": "1"},
        ),
        (
            applies("Object{dada: {'b': '1'}}"),
            "error applying patch: failed to convert patch object to typed object: .dada: field "
            "not declared in schema",
        ),
        (
            applies("Object{metadata: Object.spec{labels: {'a': 'b'}}}"),
            'type mismatch: unexpected type name "Object.spec", expected "Object.metadata", which '
            "matches field name path from root Object type",
        ),
        (
            applies("Object{data: {'b': object.data.none}}"),
            "expression 'Object{data: {'b': object.data.none}}' resulted in error: no such key: "
            "none",
        ),
        (applies("Object{data: {'b': object.data.none}}", failurePolicy="Ignore"), {"a": "1"}),
    ],
)
async def test_a_mutating_policy_changes_the_object(
    spec: dict[str, Any], expected: dict[str, str] | str
) -> None:
    async with run(release="1.36") as api:
        await define(api, spec, mutating=True)
        status, answer = await api.call("POST", MAPS, config(a="1"))
    if isinstance(expected, str):
        assert (status, answer["reason"]) == (403, "Invalid")
        assert answer["message"] == f"policy 'p' with binding 'b' denied request: {expected}"
    else:
        assert (status, answer["data"]) == (201, expected)


async def test_an_atomic_list_cannot_be_applied() -> None:
    rule = {**RULE, "resources": ["pods"]}
    spec = applies("Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'a'}]}}")
    async with run(release="1.36") as api:
        await define(api, spec, mutating=True, constraints={"resourceRules": [rule]})
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        _, answer = await api.call("POST", f"{NS}/pods", pod)
        assert answer["message"].endswith(
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps "
            "or structs: .spec.tolerations"
        )


async def test_the_second_round_applies_policies_that_request_it() -> None:
    count = (
        "Object{data: {'n': has(object.data) && 'n' in object.data ? "
        "string(int(object.data.n) + 1) : '1', 'seen': 'other' in object.data ? 'yes' : 'no'}}"
    )
    async with run(release="1.36") as api:
        await define(api, applies(count, reinvocationPolicy="IfNeeded"), mutating=True)
        other = applies("Object{data: {'other': 'x'}}")
        policy = {
            "metadata": {"name": "z"},
            "spec": {"matchConstraints": {"resourceRules": [RULE]}, **other},
        }
        await api.ok("POST", f"{GROUP}/mutatingadmissionpolicies", policy)
        bound = {"metadata": {"name": "z"}, "spec": {"policyName": "z"}}
        await api.ok("POST", f"{GROUP}/mutatingadmissionpolicybindings", bound)
        made = await api.ok("POST", MAPS, config(a="1"))
        assert made["data"] == {"a": "1", "n": "2", "seen": "yes", "other": "x"}


async def test_a_changed_policy_is_compiled_again() -> None:
    async with run(release="1.36") as api:
        await define(api, checks("false"))
        assert await message(api, config())
        body = {"spec": checks("true")}
        await api.ok("PATCH", f"{GROUP}/validatingadmissionpolicies/p", body, media=MERGE)
        assert await message(api, config()) == ""
