"""Image credential providers: their configuration, calls and cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from tests.kubelet.small import Node, make_pod, running_node
from tests.kubelet.test_images import container
from tests.kubelet.test_pull_records import APP, IMAGE, record

from transom.kubelet.base import ProgramOutput
from transom.kubelet.config import CredentialProviderConfig
from transom.kubelet.credential_providers import ProviderError, read_provider_configs
from transom.kubelet.features import credential_provider_features
from transom.kubelet.images import ImageManager
from transom.machinery.objects import Object
from transom.runtime.api import AuthConfig

FEATURES = credential_provider_features((1, 36), {})
API = "credentialprovider.kubelet.k8s.io/v1"
TOKEN = {
    "serviceAccountTokenAudience": "registry",
    "requireServiceAccount": True,
    "cacheType": "ServiceAccount",
    "requiredServiceAccountAnnotationKeys": ["example.com/role"],
}


def provider(**fields: Any) -> Object:
    return {
        "name": "helper",
        "apiVersion": API,
        "matchImages": ["*.com"],
        "defaultCacheDuration": "10m",
        **fields,
    }


def read(node: Node, *providers: Object, version: str = "v1") -> Any:
    config = {
        "apiVersion": f"kubelet.config.k8s.io/{version}",
        "kind": "CredentialProviderConfig",
        "providers": list(providers),
    }
    node.host.files.mkdir("/etc/helpers")
    node.host.files.write("/etc/helpers/helper", b"#!/bin/sh", 0o755)
    node.host.files.write("/etc/helpers.yaml", orjson.dumps(config))
    return read_provider_configs(node.host.files, "/etc/helpers.yaml", "/etc/helpers", FEATURES)


class Helper:
    """The program of a provider."""

    def __init__(self, **response: Any) -> None:
        self.requests: list[Object] = []
        self.environment: Mapping[str, str] = {}
        self.argv: Sequence[str] = ()
        self.code = 0
        self.response = {
            "kind": "CredentialProviderResponse",
            "apiVersion": API,
            "cacheKeyType": "Registry",
            "auth": {"example.com": {"username": "u", "password": "p"}},
            **response,
        }

    async def __call__(
        self,
        argv: Sequence[str],
        seconds: float,
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        apart: bool = False,
    ) -> ProgramOutput:
        assert seconds == 60 and apart
        self.argv, self.environment = argv, environment or {}
        self.requests.append(orjson.loads(stdin))
        return ProgramOutput(self.code, orjson.dumps(self.response), b"no network")


class Accounts:
    """A client that knows one service account."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        self.annotations = annotations
        self.tokens: list[Object] = []

    async def get(self, resource: Any, namespace: str, name: str) -> Object:
        return {"metadata": {"name": name, "uid": "sa-1", "annotations": dict(self.annotations)}}

    async def create_subresource(
        self, resource: Any, namespace: str, name: str, subresource: str, body: Object
    ) -> Object:
        self.tokens.append(body)
        return {"status": {"token": "T0KEN"}}


def manager(node: Node, helper: Helper, *configs: CredentialProviderConfig) -> ImageManager:
    config = replace(node.env.config, credential_providers=configs)
    node.env = replace(node.env, config=config, run_program=helper)
    return ImageManager(node.env)


async def pull(node: Node, images: ImageManager, name: str = "web", **spec: Any) -> Any:
    """The credential of the pull."""
    node.runtime.registry[IMAGE] = APP
    pod = make_pod(name, container(IMAGE, "Always"), **spec)
    await images.ensure(pod, pod["spec"]["containers"][0], None)
    return next(call[2] for call in reversed(node.runtime.calls) if call[0] == "pull_image")


async def test_a_provider_gives_credentials_and_they_are_cached() -> None:
    async with running_node(version="v1.36.0") as node:
        configs = read(node, provider(args=["get"], env=[{"name": "REGION", "value": "eu"}]))
        helper = Helper()
        images = manager(node, helper, *configs)
        assert await pull(node, images) == AuthConfig("u", "p")
        assert helper.requests == [
            {
                "kind": "CredentialProviderRequest",
                "apiVersion": API,
                "image": "example.com/team/app",
            }
        ]
        assert (list(helper.argv), helper.environment) == (
            ["/etc/helpers/helper", "get"],
            {"REGION": "eu"},
        )
        await pull(node, images)
        assert len(helper.requests) == 1
        node.clock.advance(601)
        await pull(node, images)
        assert len(helper.requests) == 2
        credentials = record(node)["credentialMapping"]["example.com/team/app"]
        assert credentials == {"nodePodsAccessible": True}


@pytest.mark.parametrize(
    ("response", "credential", "calls"),
    [
        ({"cacheDuration": "0s"}, AuthConfig("u", "p"), 2),
        ({"cacheKeyType": "Global"}, AuthConfig("u", "p"), 1),
        ({"cacheKeyType": "Never"}, None, 2),
        ({"apiVersion": "credentialprovider.kubelet.k8s.io/v1beta1"}, None, 2),
        ({"kind": "Other"}, None, 2),
        ({"auth": {"other.com": {"username": "u", "password": "p"}}}, None, 1),
    ],
)
async def test_responses(response: Object, credential: AuthConfig | None, calls: int) -> None:
    async with running_node(version="v1.36.0") as node:
        helper = Helper(**response)
        images = manager(node, helper, *read(node, provider()))
        assert await pull(node, images) == credential
        assert await pull(node, images) == credential
        assert len(helper.requests) == calls


async def test_a_program_that_fails_gives_no_credentials() -> None:
    async with running_node(version="v1.36.0") as node:
        helper = Helper()
        helper.code = 1
        images = manager(node, helper, *read(node, provider()))
        assert await pull(node, images) is None


async def test_images_of_other_registries_are_not_asked_for() -> None:
    async with running_node(version="v1.36.0") as node:
        helper = Helper()
        images = manager(node, helper, *read(node, provider(matchImages=["*.example.org"])))
        assert await pull(node, images) is None
        assert helper.requests == []


@pytest.mark.parametrize(("annotated", "calls"), [(True, 1), (False, 0)])
async def test_a_provider_gets_a_token_of_the_service_account(annotated: bool, calls: int) -> None:
    async with running_node(version="v1.36.0") as node:
        accounts = Accounts({"example.com/role": "reader"} if annotated else {})
        node.env = replace(node.env, client=accounts)
        helper = Helper()
        images = manager(node, helper, *read(node, provider(tokenAttributes=TOKEN)))
        await pull(node, images, serviceAccountName="builder")
        assert len(helper.requests) == len(accounts.tokens) == calls
        if not calls:
            return
        assert helper.requests[0]["serviceAccountToken"] == "T0KEN"
        assert helper.requests[0]["serviceAccountAnnotations"] == {"example.com/role": "reader"}
        assert accounts.tokens[0]["spec"] == {
            "audiences": ["registry"],
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "uid-web"},
        }
        account = {"uid": "sa-1", "namespace": "default", "name": "builder"}
        assert record(node)["credentialMapping"]["example.com/team/app"] == {
            "kubernetesServiceAccounts": [account]
        }


async def test_a_token_is_not_a_password() -> None:
    async with running_node(version="v1.36.0") as node:
        node.env = replace(node.env, client=Accounts({"example.com/role": "reader"}))
        helper = Helper(auth={"example.com": {"username": "u", "password": "T0KEN"}})
        images = manager(node, helper, *read(node, provider(tokenAttributes=TOKEN)))
        assert await pull(node, images, serviceAccountName="builder") is None
        cached = {**TOKEN, "cacheType": "Token"}
        images = manager(node, helper, *read(node, provider(tokenAttributes=cached)))
        assert await pull(node, images, serviceAccountName="builder") == AuthConfig("u", "T0KEN")


@pytest.mark.parametrize(
    ("providers", "problem"),
    [
        ([], "providers: Required value: at least 1 item in plugins is required"),
        (
            [provider(matchImages=[])],
            "providers.matchImages: Required value: at least 1 item in matchImages is required",
        ),
        (
            [provider(name="a b", defaultCacheDuration=None)],
            '[providers.name: Invalid value: "a b": provider name cannot contain spaces, '
            "providers.defaultCacheDuration: Required value]",
        ),
        (
            [provider(apiVersion="v2")],
            'providers.apiVersion: Unsupported value: "v2": supported values: '
            '"credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1alpha1", '
            '"credentialprovider.kubelet.k8s.io/v1beta1"',
        ),
        (
            [provider(tokenAttributes={**TOKEN, "cacheType": "Pod"})],
            'providers.tokenAttributes.cacheType: Unsupported value: "Pod": supported values: '
            '"ServiceAccount", "Token"',
        ),
    ],
)
async def test_configurations_that_are_refused(providers: list[Object], problem: str) -> None:
    async with running_node() as node:
        with pytest.raises(ProviderError) as refused:
            read(node, *providers)
        assert str(refused.value) == (f"failed to validate credential provider config: {problem}")


async def test_files_that_are_refused() -> None:
    async with running_node() as node:
        with pytest.raises(ProviderError, match="plugin binary executable /etc/helpers/gone did"):
            read(node, provider(name="gone"))
        with pytest.raises(ProviderError, match='duplicate provider name "helper" found'):
            read(node, provider(), provider())
        with pytest.raises(ProviderError, match="strict decoding error: unknown field"):
            read(node, provider(image="x"))
        with pytest.raises(ProviderError, match='no kind "CredentialProviderConfig" is registered'):
            read(node, provider(), version="v3")


def test_releases() -> None:
    assert credential_provider_features((1, 20), {}).versions == ()
    gate = {"KubeletCredentialProviders": True}
    assert credential_provider_features((1, 20), gate).versions == ("v1alpha1",)
    assert credential_provider_features((1, 24), {}).versions == ("v1alpha1", "v1beta1")
    assert credential_provider_features((1, 30), {}).versions == ("v1alpha1", "v1beta1", "v1")
    assert not credential_provider_features((1, 33), {}).tokens
    assert credential_provider_features((1, 34), {}).tokens
