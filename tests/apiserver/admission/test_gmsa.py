from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.apiserver.admission.support import MERGE, NS, PODS, pod, run
from tests.apiserver.harness import Api

from transom.apiserver.admission import gmsa_resource as gmsa
from transom.apiserver.admission.gmsa import WEBHOOK, check_gmsa_unchanged
from transom.apiserver.core.loopback import SERVER_USER
from transom.apiserver.serving.inprocess import InProcessClient
from transom.machinery.errors import ApiError

SPECS = "/apis/windows.k8s.io/v1/gmsacredentialspecs"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
DENIED = f'admission webhook "{WEBHOOK}" denied the request: '
DOMAIN = {
    "DomainJoinConfig": {"Sid": "S-1-5-21", "DnsName": "contoso.com", "NetBiosName": "A&B"},
    "CmsPlugins": ["ActiveDirectory"],
}
# As Go writes a map: keys sorted, nothing between the tokens, HTML escaped.
CONTENTS = (
    '{"CmsPlugins":["ActiveDirectory"],'
    '"DomainJoinConfig":{"DnsName":"contoso.com","NetBiosName":"A\\u0026B","Sid":"S-1-5-21"}}'
)


@asynccontextmanager
async def cluster(
    *, defined: bool = True, specs: bool = True, **options: Any
) -> AsyncIterator[Api]:
    async with run(**{"gmsa": True, **options}) as api:
        if defined:
            await gmsa.ensure_gmsa_resource(InProcessClient(api.server, SERVER_USER))
            for _ in range(10):  # turns of the loop after which it is served
                await asyncio.sleep(0)
        if defined and specs:
            await api.ok(
                "POST",
                SPECS,
                {
                    "apiVersion": "windows.k8s.io/v1",
                    "kind": "GMSACredentialSpec",
                    "metadata": {"name": "web"},
                    "credspec": DOMAIN,
                },
            )
            await api.ok(
                "POST",
                SPECS,
                {
                    "apiVersion": "windows.k8s.io/v1",
                    "kind": "GMSACredentialSpec",
                    "metadata": {"name": "empty"},
                },
            )
            await api.ok(
                "POST",
                f"{RBAC}/clusterroles",
                {
                    "metadata": {"name": "use-web"},
                    "rules": [
                        {
                            "apiGroups": ["windows.k8s.io"],
                            "resources": ["gmsacredentialspecs"],
                            "verbs": ["use"],
                            "resourceNames": ["web", "gone"],
                        }
                    ],
                },
            )
            await api.ok(
                "POST",
                f"{RBAC}/namespaces/default/rolebindings",
                {
                    "metadata": {"name": "web"},
                    "roleRef": {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "ClusterRole",
                        "name": "use-web",
                    },
                    "subjects": [
                        {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
                    ],
                },
            )
            quiet = {"metadata": {"name": "stranger"}, "automountServiceAccountToken": False}
            await api.ok("POST", f"{NS}/serviceaccounts", quiet)
        yield api


def windows(
    options: dict[str, Any], container: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A pod with these options of its own and, if given, those of its one container."""
    made = pod(securityContext={"windowsOptions": options}, **spec)
    if container is not None:
        made["spec"]["containers"][0]["securityContext"] = {"windowsOptions": container}
    return made


def named(name: str, contents: str | None = None) -> dict[str, Any]:
    return {"gmsaCredentialSpecName": name} | (
        {} if contents is None else {"gmsaCredentialSpec": contents}
    )


async def answer(api: Api, body: Any, target: str = PODS) -> tuple[int, str]:
    """201 with nothing, or the code and the message after the webhook's name."""
    status, made = await api.call("POST", target, body)
    if status == 201:
        return status, ""
    assert made["message"].startswith(DENIED), made
    assert made["code"] == status
    assert "reason" not in made
    return status, made["message"].removeprefix(DENIED)


async def test_contents_are_copied_into_the_pod_and_its_containers() -> None:
    async with cluster() as api:
        made = await api.ok("POST", PODS, windows(named("web"), named("web")))
        for options in (made["spec"], made["spec"]["containers"][0]):
            assert options["securityContext"]["windowsOptions"] == named("web", CONTENTS)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (windows({"runAsUserName": "ContainerUser"}), (201, "")),
        (windows(named("web", CONTENTS)), (201, "")),
        (windows(named("web", CONTENTS.replace(",", ",\n "))), (201, "")),
        (windows(named("ghost")), (404, "cred spec ghost does not exist")),
        (windows(named("empty")), (417, "cred spec empty does not have a credspec key")),
        (
            windows(named("web"), serviceAccountName="stranger"),
            (403, 'service account "stranger" is not authorized to `use` GMSA cred spec "web"'),
        ),
        (
            windows({}, named("web"), serviceAccountName="stranger"),
            (403, 'service account "stranger" is not authorized to `use` GMSA cred spec "web"'),
        ),
        # The right is asked for before the resource.
        (
            windows(named("ghost", "{}")),
            (403, 'service account "default" is not authorized to `use` GMSA cred spec "ghost"'),
        ),
        (windows(named("gone", "{}")), (404, "cred spec gone does not exist")),
        (
            windows(named("web", "{}")),
            (
                422,
                (
                    'the GMSA cred spec contents for pod "p" does not match the contents of GMSA '
                    'resource "web"'
                ),
            ),
        ),
        (
            windows(named("web", "null")),
            (
                422,
                (
                    'the GMSA cred spec contents for pod "p" does not match the contents of GMSA '
                    'resource "web"'
                ),
            ),
        ),
        (
            windows({}, named("web", "{]")),
            (
                422,
                'the GMSA cred spec contents for container "c" does not match the contents '
                'of GMSA resource "web": unable to '
                "parse \"{]\" as a JSON object: invalid character ']' looking for beginning "
                "of object key string",
            ),
        ),
        (
            windows(named("web", "[1]")),
            (
                422,
                'the GMSA cred spec contents for pod "p" does not match the contents of GMSA '
                'resource "web": unable to parse '
                '"[1]" as a JSON object: json: cannot unmarshal array into Go value of type '
                "map[string]interface {}",
            ),
        ),
        (
            windows({}, {"gmsaCredentialSpec": "{}"}),
            (
                422,
                (
                    'container "c" has a GMSA cred spec set, but does not define the name of the '
                    "corresponding resource"
                ),
            ),
        ),
    ],
)
async def test_answers_of_the_webhook(body: dict[str, Any], expected: tuple[int, str]) -> None:
    async with cluster() as api:
        assert await answer(api, body) == expected


async def test_without_the_resource_nothing_can_be_retrieved() -> None:
    async with cluster(defined=False) as api:
        assert await answer(api, windows(named("web"))) == (
            500,
            (
                "unable to retrieve the contents of cred spec web: the server could not find the "
                "requested resource"
            ),
        )


async def test_where_no_credential_spec_is_kept_pods_may_bring_contents_of_their_own() -> None:
    async with cluster(specs=False) as api:
        assert await answer(api, windows({"gmsaCredentialSpec": "{}"})) == (201, "")


@pytest.mark.parametrize(
    "label", [{"gmsa-webhook": "disabled"}, {"windows.k8s.io/disabled": "true"}]
)
async def test_a_namespace_can_be_exempt(label: dict[str, str]) -> None:
    async with cluster() as api:
        await api.ok("PATCH", NS, {"metadata": {"labels": label}}, media=MERGE)
        made = await api.ok("POST", PODS, windows(named("ghost")))
        assert made["spec"]["securityContext"]["windowsOptions"] == named("ghost")


@pytest.mark.windows("W-SEC-30")
async def test_off_unless_asked_for() -> None:
    async with cluster(gmsa=False) as api:
        assert await answer(api, windows(named("ghost"), {"gmsaCredentialSpec": "{}"})) == (201, "")


async def test_stands_back_for_the_webhook_itself() -> None:
    """The configuration may have any name. This webhook cannot be reached, and may be ignored."""

    async with cluster() as api:
        webhook = {
            "name": WEBHOOK,
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [
                {
                    "operations": ["CREATE"],
                    "apiGroups": [""],
                    "apiVersions": ["*"],
                    "resources": ["pods"],
                }
            ],
        }
        group = "/apis/admissionregistration.k8s.io/v1"
        await api.ok(
            "POST",
            f"{group}/mutatingwebhookconfigurations",
            {"metadata": {"name": "x"}, "webhooks": [webhook]},
        )
        status, text = await answer(api, windows(named("ghost")))
        assert (status, "is not authorized to `use`" in text) == (403, True), (
            "the other step is still ours"
        )
        await api.ok(
            "POST",
            f"{group}/validatingwebhookconfigurations",
            {"metadata": {"name": "x"}, "webhooks": [webhook]},
        )
        assert await answer(api, windows(named("ghost"))) == (201, "")


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (windows(named("a", "{}")), windows(named("a", "{}")), ""),
        (windows({}), windows(named("a", "{}")), 'GMSA name and contents modified on pod "p"'),
        (windows({}, named("b")), windows({}, named("a")), 'GMSA name modified on container "c"'),
        (
            windows({}, named("a", "[]")),
            windows({}, named("a", "{}")),
            'GMSA contents modified on container "c"',
        ),
        (windows(named("a")), pod(), 'GMSA name modified on pod "p"'),
    ],
)
def test_a_pod_keeps_its_identity(new: dict[str, Any], old: dict[str, Any], expected: str) -> None:
    if not expected:
        check_gmsa_unchanged(new, old)
        return
    with pytest.raises(ApiError) as refused:
        check_gmsa_unchanged(new, old)
    assert refused.value.code == 403
    assert (
        refused.value.message
        == f"{DENIED}cannot update an existing pod's GMSA settings ({expected})"
    )


async def test_the_definition_is_accepted_and_others_are_left_alone() -> None:
    async with cluster(defined=False) as api:
        client = InProcessClient(api.server, SERVER_USER)
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gmsacredentialspecs.windows.k8s.io"
        await gmsa.ensure_gmsa_resource(client)
        await api.ok("PATCH", path, {"metadata": {"labels": {"mine": "yes"}}}, media=MERGE)
        before = await api.ok("GET", path)
        await gmsa.ensure_gmsa_resource(client)
        assert await api.ok("GET", path) == before
        conditions = {c["type"]: c["status"] for c in before["status"]["conditions"]}
        assert conditions == {
            "NamesAccepted": "True",
            "Established": "True",
            "KubernetesAPIApprovalPolicyConformant": "True",
        }
        old = {
            "apiVersion": "windows.k8s.io/v1alpha1",
            "kind": "GMSACredentialSpec",
            "metadata": {"name": "a"},
            "credspec": {**DOMAIN, "Unknown": 1},
        }
        made = await api.ok("POST", SPECS.replace("v1/", "v1alpha1/"), old)
        assert made["credspec"] == DOMAIN
