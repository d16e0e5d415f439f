"""Service accounts, their tokens and the root certificate are created with a namespace, restored,
and deleted together.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from tests.conftest import ContextFactory

from transom.client.resources import CONFIG_MAPS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from transom.machinery.objects import Object

from .conftest import ROOT_CA, Plane

Play = Callable[..., None]


def text(secret: Object, key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()


async def tokens(plane: Plane, namespace: str) -> list[str]:
    return [s["metadata"]["name"] for s in (await plane.client.list(SECRETS, namespace)).items]


async def test_a_namespace_comes_with_everything(control_plane: ContextFactory) -> None:
    async with control_plane() as plane:
        await plane.client.create(NAMESPACES, "", {"metadata": {"name": "x"}})
        await plane.settle()
        account = await plane.get(SERVICE_ACCOUNTS, "x", "default")
        (name,) = [ref["name"] for ref in account["secrets"]]
        assert name.startswith("default-token-") and await tokens(plane, "x") == [name]
        secret = await plane.get(SECRETS, "x", name)
        assert secret["type"] == "kubernetes.io/service-account-token"
        assert secret["metadata"]["annotations"] == {
            "kubernetes.io/service-account.name": "default",
            "kubernetes.io/service-account.uid": account["metadata"]["uid"],
        }
        assert text(secret, "token") == "token of system:serviceaccount:x:default"
        assert (text(secret, "namespace"), text(secret, "ca.crt")) == ("x", ROOT_CA)
        assert (await plane.get(CONFIG_MAPS, "x", "kube-root-ca.crt"))["data"] == {
            "ca.crt": ROOT_CA
        }


async def test_what_is_deleted_comes_back(control_plane: ContextFactory) -> None:
    async with control_plane() as plane:
        before = await plane.get(SERVICE_ACCOUNTS, "default", "default")
        await plane.client.delete(CONFIG_MAPS, "default", "kube-root-ca.crt")
        await plane.client.delete(SERVICE_ACCOUNTS, "default", "default")
        await plane.settle()
        after = await plane.get(SERVICE_ACCOUNTS, "default", "default")
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        # the old one went with its account
        assert await tokens(plane, "default") == [after["secrets"][0]["name"]]
        await plane.client.patch(
            CONFIG_MAPS, "default", "kube-root-ca.crt", {"data": {"ca.crt": "forged"}}
        )
        await plane.settle()
        assert (await plane.get(CONFIG_MAPS, "default", "kube-root-ca.crt"))["data"] == {
            "ca.crt": ROOT_CA
        }


async def test_a_deleted_token_is_replaced(control_plane: ContextFactory) -> None:
    async with control_plane() as plane:
        (old,) = await tokens(plane, "default")
        await plane.client.delete(SECRETS, "default", old)
        await plane.settle()
        account = await plane.get(SERVICE_ACCOUNTS, "default", "default")
        (new,) = await tokens(plane, "default")
        assert new != old and account["secrets"] == [{"name": new}]


async def test_secrets_of_users_are_filled_in_or_dropped(control_plane: ContextFactory) -> None:
    def secret(name: str, account: str, **more: Any) -> Object:
        note = {"kubernetes.io/service-account.name": account}
        return {
            "metadata": {"name": name, "annotations": note},
            "type": "kubernetes.io/service-account-token",
            **more,
        }

    async with control_plane() as plane:
        await plane.client.create(SECRETS, "default", secret("mine", "default"))
        await plane.client.create(SECRETS, "default", secret("stray", "nobody"))
        await plane.client.create(
            SECRETS, "default", secret("old", "default", data={"ca.crt": "eA==", "token": "eQ=="})
        )
        await plane.settle()
        account = await plane.get(SERVICE_ACCOUNTS, "default", "default")
        mine = await plane.get(SECRETS, "default", "mine")
        assert text(mine, "token") == "token of system:serviceaccount:default:default"
        assert (
            mine["metadata"]["annotations"]["kubernetes.io/service-account.uid"]
            == account["metadata"]["uid"]
        )
        assert "mine" not in [ref["name"] for ref in account["secrets"]]
        old = await plane.get(SECRETS, "default", "old")
        assert (text(old, "ca.crt"), text(old, "token")) == (ROOT_CA, "y")
        assert await plane.missing(SECRETS, "default", "stray")


async def test_a_restart_changes_nothing(control_plane: ContextFactory) -> None:
    async with control_plane() as plane:
        before = plane.api.storage.store.revision
        await plane.stop_controllers()
        plane.start_controllers()
        await plane.settle(120)
        assert plane.api.storage.store.revision == before
