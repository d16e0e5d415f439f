"""ServiceAccount: sets a pod's service account and mounts its token into the containers.

Up to 1.20 the token is in a Secret that the account lists; from 1.21 on the kubelet requests and
projects it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from transom.apiserver.admission.plugin import MutatingPlugin, ValidatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource
from transom.kit import gobool
from transom.kit.clock import Clock
from transom.kit.goquote import go_quote
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.pod_references import secret_names
from transom.machinery.serviceaccounts import TOKEN_SECRET, token_sources

DEFAULT_ACCOUNT = "default"
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
ENFORCE_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"
MIRROR = "kubernetes.io/config.mirror"
_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_ACCOUNT_UID = "kubernetes.io/service-account.uid"
_PROJECTED = "kube-api-access-"
# A controller creates the default account of a new namespace, which may take a moment.
_ATTEMPTS = 10
_MANY = 500  # imagePullSecrets that take long to process
_BETWEEN_ATTEMPTS = 0.1


class ServiceAccount(MutatingPlugin, ValidatingPlugin):
    name = "ServiceAccount"
    thread_safe = True

    def __init__(
        self,
        objects: ObjectStore,
        accounts: Resource,
        secrets: Resource,
        generate_name: Callable[[str], str],
        clock: Clock,
        *,
        projected: bool,
    ) -> None:
        self._objects = objects
        self._accounts = accounts
        self._secrets = secrets
        self._generate_name = generate_name
        self._clock = clock
        self._projected = projected

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return resource.kind.key == "/Pod" and operation == "CREATE" and not subresource

    def admit(self, attributes: Attributes) -> Awaitable[None] | None:
        pod = attributes.obj
        if MIRROR in (pod["metadata"].get("annotations") or ()):
            # The kubelet deletes a mirror pod whose spec differs from the one it sent.
            _check_mirror(attributes)
            return None
        spec = pod["spec"]
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = DEFAULT_ACCOUNT
        account = self._find(attributes)
        if account is None and spec["serviceAccountName"] == DEFAULT_ACCOUNT:
            return self._admit_later(attributes)
        if account is None and self._objects.store.follows:
            return self._admit_current(attributes)
        self._admit(attributes, account)
        return None

    async def _admit_current(self, attributes: Attributes) -> None:
        """Another server may just have created the account."""
        await self._objects.store.sync()
        self._admit(attributes, self._find(attributes))

    async def _admit_later(self, attributes: Attributes) -> None:
        account = None
        for _ in range(_ATTEMPTS - 1):
            await self._clock.sleep(_BETWEEN_ATTEMPTS)
            account = self._find(attributes)
            if account is not None:
                break
        self._admit(attributes, account)

    def _admit(self, attributes: Attributes, account: Object | None) -> None:
        spec = attributes.obj["spec"]
        if account is None:
            raise _missing(attributes)
        if _automount(spec, account):
            self._mount_token(spec, account)
        pull_secrets = account.get("imagePullSecrets")
        if pull_secrets and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [{"name": ref.get("name", "")} for ref in pull_secrets]
            if len(pull_secrets) > _MANY:
                attributes.ctx.large = True  # a small pod became large
        _check_secrets(attributes, account)

    def validate(self, attributes: Attributes) -> None:
        if MIRROR in (attributes.obj["metadata"].get("annotations") or ()):
            _check_mirror(attributes)
            return
        account = self._find(attributes)
        if account is None:
            raise _missing(attributes)
        _check_secrets(attributes, account)

    def _find(self, attributes: Attributes) -> Object | None:
        name = attributes.obj["spec"].get("serviceAccountName", "")
        return self._objects.find(self._accounts, attributes.namespace, name)

    # ---- the token ----

    def _mount_token(self, spec: Object, account: Object) -> None:
        secret = "" if self._projected else self._token_secret(account)
        volumes = spec.get("volumes") or []
        volume = next((v["name"] for v in volumes if self._is_token_volume(v, secret)), "")
        name = volume or self._volume_name(secret, {v.get("name", "") for v in volumes})
        needed = False
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            mounts = container.get("volumeMounts") or []
            # A pod with its own mount at this path does not get the token.
            if all(mount.get("mountPath") != MOUNT_PATH for mount in mounts):
                container["volumeMounts"] = [
                    *mounts,
                    {"name": name, "readOnly": True, "mountPath": MOUNT_PATH},
                ]
                needed = True
        if needed and not volume:
            spec["volumes"] = [*volumes, {"name": name, **self._source(secret)}]

    def _is_token_volume(self, volume: Object, secret: str) -> bool:
        if self._projected:
            return bool(volume.get("name", "").startswith(_PROJECTED))
        return bool((volume.get("secret") or {}).get("secretName") == secret)

    def _volume_name(self, secret: str, taken: set[str]) -> str:
        if self._projected:
            return self._generate_name(_PROJECTED)
        name = secret.replace(".", "-")  # volume names cannot contain dots
        return self._generate_name(f"{name}-") if name in taken else name

    def _source(self, secret: str) -> Object:
        if not self._projected:
            return {"secret": {"secretName": secret}}
        return {"projected": {"sources": token_sources()}}

    def _token_secret(self, account: Object) -> str:
        """The first Secret of the account that contains a token for it."""
        meta = account["metadata"]
        for reference in account.get("secrets") or ():
            secret = self._objects.find(self._secrets, meta["namespace"], reference.get("name", ""))
            if secret is not None and _is_token_of(secret, meta):
                return str(reference["name"])
        raise ApiError(
            500,
            "ServerTimeout",
            f"No API token found for service account {go_quote(meta['name'])}, "
            "retry after the token is automatically created and added to the service account",
            {"name": "create pod", "kind": "serviceaccounts", "retryAfterSeconds": 1},
            {"Retry-After": "1"},
        )


def _is_token_of(secret: Object, account_meta: Object) -> bool:
    annotations = secret["metadata"].get("annotations") or {}
    uid = annotations.get(_ACCOUNT_UID)
    return (
        secret.get("type") == TOKEN_SECRET
        and annotations.get(_ACCOUNT_NAME) == account_meta["name"]
        and (not uid or uid == account_meta["uid"])
    )


def _automount(spec: Object, account: Object) -> bool:
    """The pod's setting takes precedence over the account's."""
    automount = spec.get("automountServiceAccountToken")
    if automount is None:
        automount = account.get("automountServiceAccountToken")
    return automount is None or bool(automount)


def _missing(attributes: Attributes) -> ApiError:
    name = attributes.obj["spec"].get("serviceAccountName", "")
    return attributes.forbidden(
        f"error looking up service account {attributes.namespace}/{name}: serviceaccount "
        f'"{name}" not found'
    )


def _check_mirror(attributes: Attributes) -> None:
    spec = attributes.obj["spec"]
    if spec.get("serviceAccountName"):
        raise attributes.forbidden("a mirror pod may not reference service accounts")
    if any(True for _ in secret_names(spec)):
        raise attributes.forbidden("a mirror pod may not reference secrets")
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken") is not None:
                raise attributes.forbidden(
                    "a mirror pod may not use ServiceAccountToken volume projections"
                )


def _check_secrets(attributes: Attributes, account: Object) -> None:
    """An account may restrict its pods to the Secrets listed in it."""
    if (account["metadata"].get("annotations") or {}).get(ENFORCE_MOUNTABLE) not in gobool.TRUE:
        return
    spec = attributes.obj["spec"]
    name = account["metadata"]["name"]
    allowed = {ref.get("name", "") for ref in account.get("secrets") or ()}
    tail = f"is not allowed because service account {name} does not reference that"
    for volume in spec.get("volumes") or ():
        if "secret" in volume and (secret := volume["secret"].get("secretName", "")) not in allowed:
            raise attributes.forbidden(f'volume with secret.secretName="{secret}" {tail} secret')
    for field, noun in (("initContainers", "init container"), ("containers", "container")):
        for container in spec.get(field) or ():
            for env in container.get("env") or ():
                reference = (env.get("valueFrom") or {}).get("secretKeyRef")
                if reference is not None and (secret := reference.get("name", "")) not in allowed:
                    raise attributes.forbidden(
                        f"{noun} {container.get('name', '')} with envVar "
                        f"{env.get('name', '')} referencing "
                        f'secret.secretName="{secret}" {tail} secret'
                    )
    pulls = {ref.get("name", "") for ref in account.get("imagePullSecrets") or ()}
    for i, reference in enumerate(spec.get("imagePullSecrets") or ()):
        if (secret := reference.get("name", "")) not in pulls:
            raise attributes.forbidden(
                f'imagePullSecrets[{i}].name="{secret}" {tail} imagePullSecret'
            )
