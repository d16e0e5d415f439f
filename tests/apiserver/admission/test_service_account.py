from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.apiserver.admission.support import NS, PODS, pod, refused, run
from tests.apiserver.harness import Api, start

ACCOUNTS = f"{NS}/serviceaccounts"
MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


async def account(api: Api, name: str, token: str = "", **more: Any) -> None:
    """An account, and the secret with its token when there is to be one."""
    references = {"secrets": [{"name": "other"}, {"name": token}]} if token else {}
    made = await api.ok("POST", ACCOUNTS, {"metadata": {"name": name}, **references, **more})
    if token:
        await api.ok(
            "POST",
            f"{NS}/secrets",
            {
                "type": "kubernetes.io/service-account-token",
                "metadata": {
                    "name": token,
                    "annotations": {
                        "kubernetes.io/service-account.name": name,
                        "kubernetes.io/service-account.uid": made["metadata"]["uid"],
                    },
                },
            },
        )


async def test_the_token_secret_is_mounted_where_nothing_else_is() -> None:
    async with run() as api:
        await account(api, "robot", "robot.token")
        given = pod(serviceAccountName="robot", volumes=[{"name": "robot-token", "emptyDir": {}}])
        given["spec"]["initContainers"] = [
            {
                "name": "i",
                "image": "i",
                "volumeMounts": [{"name": "robot-token", "mountPath": MOUNT}],
            }
        ]
        spec = (await api.ok("POST", PODS, given))["spec"]
        # The name is the secret's without dots; that one is taken here.
        ours = spec["volumes"][1]
        assert (
            ours["name"].startswith("robot-token-") and len(ours["name"]) == len("robot-token-") + 5
        )
        assert ours["secret"] == {"secretName": "robot.token", "defaultMode": 420}
        assert spec["containers"][0]["volumeMounts"] == [
            {"name": ours["name"], "readOnly": True, "mountPath": MOUNT}
        ]
        assert [m["name"] for m in spec["initContainers"][0]["volumeMounts"]] == ["robot-token"]
        assert spec["serviceAccount"] == "robot"


async def test_a_volume_of_that_secret_is_used_again() -> None:
    async with run() as api:
        await account(api, "robot", "t")
        volume = {"name": "mine", "secret": {"secretName": "t"}}
        spec = (await api.ok("POST", PODS, pod(serviceAccountName="robot", volumes=[volume])))[
            "spec"
        ]
        assert [v["name"] for v in spec["volumes"]] == ["mine"]
        assert spec["containers"][0]["volumeMounts"][0]["name"] == "mine"


async def test_without_a_token_one_is_asked_to_come_back() -> None:
    async with run() as api:
        await account(api, "bare")
        answer = await api.send("POST", PODS, pod(serviceAccountName="bare"))
        assert answer.status == 500
        assert (b"Retry-After", b"1") in answer.headers
        _, status = await api.call("POST", PODS, pod(serviceAccountName="bare"))
        assert status["reason"] == "ServerTimeout"
        assert status["message"] == (
            'No API token found for service account "bare", retry after the token is '
            "automatically created and added to the service account"
        )
        assert status["details"] == {
            "name": "create pod",
            "kind": "serviceaccounts",
            "retryAfterSeconds": 1,
        }


async def test_the_secret_of_another_account_of_that_name_is_not_a_token() -> None:
    async with run() as api:
        await account(api, "robot", "t")
        await api.ok("DELETE", f"{ACCOUNTS}/robot")
        await api.ok("POST", ACCOUNTS, {"metadata": {"name": "robot"}, "secrets": [{"name": "t"}]})
        status, _ = await api.call("POST", PODS, pod(serviceAccountName="robot"))
        assert status == 500


async def test_newer_releases_project_the_token() -> None:
    async with run(release="1.21") as api:
        await account(api, "robot")
        spec = (await api.ok("POST", PODS, pod(serviceAccountName="robot")))["spec"]
        (volume,) = spec["volumes"]
        assert volume["name"].startswith("kube-api-access-")
        assert volume["projected"] == {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {
                    "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }
                },
                {
                    "downwardAPI": {
                        "items": [
                            {
                                "path": "namespace",
                                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                            },
                        ]
                    }
                },
            ],
        }


async def test_the_default_account_of_a_new_namespace_is_waited_for() -> None:
    api = await start()
    early = asyncio.create_task(api.call("POST", PODS, pod()))
    await api.clock.run_for(0.3)
    assert not early.done()
    quiet = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
    await api.ok("POST", ACCOUNTS, quiet)
    await api.clock.run_for(0.2)
    assert (await early)[0] == 201
    late = asyncio.create_task(api.call("POST", "/api/v1/namespaces/kube-public/pods", pod()))
    await api.clock.run_for(5)
    status, answer = await late
    assert (status, answer["message"]) == (
        403,
        (
            'pods "p" is forbidden: error looking up service account kube-public/default: '
            'serviceaccount "default" not found'
        ),
    )
    await api.server.stop()


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"serviceAccountName": "default"}, "a mirror pod may not reference service accounts"),
        ({"imagePullSecrets": [{"name": "s"}]}, "a mirror pod may not reference secrets"),
        (
            {
                "volumes": [
                    {
                        "name": "v",
                        "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]},
                    }
                ]
            },
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
        ({}, ""),
    ],
)
async def test_mirror_pods_are_left_alone_and_know_no_secrets(
    spec: dict[str, Any], problem: str
) -> None:
    async with run() as api:
        mirror = pod(nodeName="n", **spec)
        mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
        if problem:
            assert await refused(api, "POST", PODS, mirror) == problem
        else:
            assert "serviceAccountName" not in (await api.ok("POST", PODS, mirror))["spec"]


ALLOWED = {"secrets": [{"name": "mine"}], "imagePullSecrets": [{"name": "pull"}]}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
            (
                'volume with secret.secretName="s" is not allowed because service account strict '
                "does not reference that secret"
            ),
        ),
        (
            {
                "initContainers": [
                    {
                        "name": "i",
                        "image": "i",
                        "env": [
                            {"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
                        ],
                    }
                ]
            },
            'init container i with envVar E referencing secret.secretName="s" is not allowed '
            "because service account strict "
            "does not reference that secret",
        ),
        (
            {"imagePullSecrets": [{"name": "pull"}, {"name": "s"}]},
            'imagePullSecrets[1].name="s" is not allowed because service account strict does '
            "not reference that "
            "imagePullSecret",
        ),
        ({"volumes": [{"name": "v", "secret": {"secretName": "mine"}}]}, ""),
    ],
)
async def test_an_account_may_hold_its_pods_to_its_own_secrets(
    change: dict[str, Any], problem: str
) -> None:
    async with run() as api:
        await api.ok(
            "POST",
            ACCOUNTS,
            {
                "metadata": {
                    "name": "strict",
                    "annotations": {"kubernetes.io/enforce-mountable-secrets": "t"},
                },
                "automountServiceAccountToken": False,
                **ALLOWED,
            },
        )
        given = pod(serviceAccountName="strict", **change)
        if problem:
            assert await refused(api, "POST", PODS, given) == problem
        else:
            made = await api.ok("POST", PODS, given)
            assert made["spec"]["imagePullSecrets"] == [{"name": "pull"}]
