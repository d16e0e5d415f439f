"""Image credential providers: programs of the node that the kubelet runs to get the credentials of
a registry (--image-credential-provider-config, --image-credential-provider-bin-dir).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import orjson

from transom.client.resources import SERVICE_ACCOUNTS
from transom.kit.durations import parse_duration
from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.base import KubeletContext
from transom.kubelet.config import CredentialProviderConfig, ProviderTokenAttributes
from transom.kubelet.credentials import (
    CredentialSource,
    TrackedAuth,
    image_matches,
    select_credentials,
)
from transom.kubelet.features import CredentialProviderFeatures
from transom.machinery import goyaml
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machines.api import Files
from transom.machines.smallfiles import LARGEST_YAML, list_small_directory, read_small_file
from transom.runtime.api import AuthConfig

log = logging.getLogger("transom.kubelet")

_SECONDS: Final = 60.0
_GLOBAL: Final = "<global>"
_API: Final = "credentialprovider.kubelet.k8s.io"
_CONFIG_GROUP: Final = "kubelet.config.k8s.io"
_CONFIG_KIND: Final = "CredentialProviderConfig"
_EXTENSIONS: Final = (".json", ".yaml", ".yml")
_PROGRAM_EXTENSIONS: Final = ("", ".exe", ".cmd", ".bat")
_UNREADABLE: Final = "error decoding credential provider plugin response from stdout"
_CACHE_TYPES: Final = ("ServiceAccount", "Token")
_CACHE_KEYS: Final = ("Image", "Registry", "Global")
_PROVIDER_FIELDS: Final = frozenset(
    (
        "apiVersion",
        "args",
        "defaultCacheDuration",
        "env",
        "matchImages",
        "name",
        "tokenAttributes",
    )
)


class ProviderError(Exception):
    """The configuration of the providers cannot be used, or a provider gave no credentials."""


class _Account(NamedTuple):
    """The service account for which a provider is called; empty without one."""

    source: CredentialSource | None = None
    token: str = ""
    annotations: tuple[tuple[str, str], ...] = ()
    cache_key: tuple[object, ...] = ()


class _CacheEntry(NamedTuple):
    entries: tuple[tuple[str, AuthConfig], ...]
    expires: float


# ---- configuration ----


def read_provider_configs(
    files: Files,
    path: str,
    programs: str,
    features: CredentialProviderFeatures,
    separator: str = "/",
) -> tuple[CredentialProviderConfig, ...]:
    """The providers of a file, or of the files in a directory. Raises ProviderError."""
    if not files.exists(programs):
        raise ProviderError(f"plugin binary directory {programs} did not exist")
    found: list[Object] = []
    for name in _configuration_files(files, path, separator):
        for provider in _providers(files, name, features):
            if any(provider.get("name") == known.get("name") for known in found):
                raise ProviderError(
                    f"duplicate provider name {go_quote(str(provider.get('name')))} found in "
                    "configuration file(s)"
                )
            found.append(provider)
    problems = (
        [] if found else ["providers: Required value: at least 1 item in plugins is required"]
    )
    problems += [text for provider in found for text in _problems(provider, features)]
    if problems:
        shown = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise ProviderError(f"failed to validate credential provider config: {shown}")
    return tuple(_config(files, provider, programs, separator) for provider in found)


def _configuration_files(files: Files, path: str, separator: str) -> list[str]:
    try:
        if files.stat(path).kind != "directory":
            return [path]
        names = sorted(list_small_directory(files, path))
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise ProviderError(f"unable to access path {go_quote(path)}: {reason}") from problem
    found = [f"{path}{separator}{name}" for name in names if name.endswith(_EXTENSIONS)]
    if not found:
        raise ProviderError(f"no configuration files found in directory {go_quote(path)}")
    return found


def _providers(files: Files, path: str, features: CredentialProviderFeatures) -> list[Object]:
    begin = f"error decoding config {go_quote(path)}: "
    try:
        content = goyaml.load_yaml(read_small_file(files, path, LARGEST_YAML))
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise ProviderError(f"unable to read file {go_quote(path)}: {reason}") from problem
    except goyaml.YamlError as problem:
        raise ProviderError(begin + str(problem).partition("\n")[0]) from problem
    if not isinstance(content, dict):
        raise ProviderError(f"{begin}Object 'Kind' is missing")
    version, kind = str(content.get("apiVersion") or ""), str(content.get("kind") or "")
    if kind != _CONFIG_KIND or version not in {
        f"{_CONFIG_GROUP}/{known}" for known in features.versions
    }:
        raise ProviderError(
            f"{begin}no kind {go_quote(kind)} is registered for version {go_quote(version)}"
        )
    providers = content.get("providers") or []
    if not isinstance(providers, list) or not all(isinstance(one, dict) for one in providers):
        raise ProviderError(f"{begin}json: cannot unmarshal into Go struct field providers")
    unknown = [
        f'unknown field "providers[{n}].{field}"'
        for n, provider in enumerate(providers)
        for field in sorted(provider.keys() - _PROVIDER_FIELDS)
    ]
    if unknown:
        raise ProviderError(f"{begin}strict decoding error: {', '.join(unknown)}")
    return providers


def _problems(provider: Object, features: CredentialProviderFeatures) -> list[str]:
    name, version = str(provider.get("name") or ""), str(provider.get("apiVersion") or "")
    out = [
        f"providers.name: Invalid value: {go_quote(name)}: provider name cannot {text}"
        for text, wrong in (
            ("contain '/'", "/" in name),
            ("contain spaces", " " in name),
            ("be '.'", name == "."),
            ("be '..'", name == ".."),
        )
        if wrong
    ]
    known = sorted(f"{_API}/{one}" for one in features.versions)
    if not version:
        out.append("providers.apiVersion: Required value")
    elif version not in known:
        supported = ", ".join(map(go_quote, known))
        out.append(
            f"providers.apiVersion: Unsupported value: {go_quote(version)}: supported values: "
            f"{supported}"
        )
    if not provider.get("matchImages"):
        out.append(
            "providers.matchImages: Required value: at least 1 item in matchImages is required"
        )
    out += _cache_problems(provider)
    if provider.get("tokenAttributes") is not None:
        out += _token_problems(provider["tokenAttributes"], version, features)
    return out


def _cache_problems(provider: Object) -> list[str]:
    field = "providers.defaultCacheDuration"
    if provider.get("defaultCacheDuration") is None:
        return [f"{field}: Required value"]
    try:
        seconds = parse_duration(provider["defaultCacheDuration"])
    except (TypeError, ValueError) as problem:
        return [f"{field}: {problem}"]
    return [f"{field}: must be greater than or equal to 0"] if seconds < 0 else []


def _token_problems(
    given: Mapping[str, Any], version: str, features: CredentialProviderFeatures
) -> list[str]:
    where, out = "providers.tokenAttributes", []
    if not features.tokens:
        out.append(
            f"{where}: Forbidden: tokenAttributes is not supported when "
            "KubeletServiceAccountTokenForCredentialProviders feature gate is disabled"
        )
    if not given.get("serviceAccountTokenAudience"):
        out.append(f"{where}.serviceAccountTokenAudience: Required value")
    if given.get("requireServiceAccount") is None:
        out.append(f"{where}.requireServiceAccount: Required value")
    if version != f"{_API}/v1":
        out.append(
            f"{where}: Forbidden: tokenAttributes is only supported for {_API}/v1 API version"
        )
    if given.get("requireServiceAccount") is False and given.get(
        "requiredServiceAccountAnnotationKeys"
    ):
        out.append(
            f"{where}.requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount "
            "cannot be false when requiredServiceAccountAnnotationKeys is set"
        )
    if features.cache_types and given.get("cacheType") not in _CACHE_TYPES:
        out.append(
            f"{where}.cacheType: Required value: cacheType is required to be set when "
            f"tokenAttributes is specified. Supported values are: {', '.join(_CACHE_TYPES)}"
            if not given.get("cacheType")
            else f"{where}.cacheType: Unsupported value: {go_quote(str(given['cacheType']))}: "
            f"supported values: {', '.join(map(go_quote, _CACHE_TYPES))}"
        )
    return out


def _config(
    files: Files, provider: Object, programs: str, separator: str
) -> CredentialProviderConfig:
    name = str(provider.get("name") or "")
    path = f"{programs}{separator}{name}"
    extensions = _PROGRAM_EXTENSIONS if separator == "\\" else ("",)
    program = next((path + end for end in extensions if files.exists(path + end)), None)
    if program is None:
        raise ProviderError(f"plugin binary executable {path} did not exist")
    token = provider.get("tokenAttributes")
    return CredentialProviderConfig(
        name,
        program,
        str(provider["apiVersion"]),
        tuple(map(str, provider["matchImages"])),
        parse_duration(provider["defaultCacheDuration"]),
        tuple(map(str, provider.get("args") or ())),
        tuple(
            (str(one.get("name") or ""), str(one.get("value") or ""))
            for one in provider.get("env") or ()
        ),
        ProviderTokenAttributes(
            str(token["serviceAccountTokenAudience"]),
            bool(token["requireServiceAccount"]),
            tuple(token.get("requiredServiceAccountAnnotationKeys") or ()),
            tuple(token.get("optionalServiceAccountAnnotationKeys") or ()),
            str(token.get("cacheType") or "ServiceAccount"),
        )
        if token is not None
        else None,
    )


# ---- credentials ----


class CredentialProviders:
    """All providers of a kubelet."""

    __slots__ = ("_providers",)

    def __init__(self, env: KubeletContext) -> None:
        self._providers = [_Provider(env, one) for one in env.config.credential_providers]

    async def lookup(self, pod: Object, repository: str) -> list[TrackedAuth]:
        """The credentials for a repository. A provider that fails gives none."""
        entries: list[tuple[str, TrackedAuth]] = []
        for provider in self._providers:
            try:
                entries += await provider.provide(pod, repository)
            except ProviderError as problem:
                log.error(
                    '"Failed to provide credentials for image" err=%s provider=%s image=%s',
                    go_quote(str(problem)),
                    go_quote(provider.config.name),
                    go_quote(repository),
                )
        return select_credentials(entries, repository)


class _Provider:
    __slots__ = ("_cache", "_env", "_running", "config")

    def __init__(self, env: KubeletContext, config: CredentialProviderConfig) -> None:
        self.config = config
        self._env = env
        self._cache: dict[object, _CacheEntry] = {}
        self._running: dict[object, asyncio.Task[Object]] = {}

    async def provide(self, pod: Object, image: str) -> list[tuple[str, TrackedAuth]]:
        """Raises ProviderError."""
        if not image_matches(self.config.match_images, image):
            return []
        account = await self._account(pod)
        if account is None:
            return []
        entries = self._cached(image, account)
        if entries is None:
            response = await self._call_once(image, account)
            entries = self._entries(response, account)
            self._store(image, account, response, entries)
        return [(place, TrackedAuth(auth, account.source)) for place, auth in entries]

    async def _account(self, pod: Object) -> _Account | None:
        """The pod's service account; None if the provider is not called for it."""
        wanted = self.config.token
        if wanted is None:
            return _Account()
        name = pod["spec"].get("serviceAccountName") or ""
        if not name:
            return None if wanted.require_service_account else _Account()
        meta = pod["metadata"]
        try:
            found = await self._env.client.get(SERVICE_ACCOUNTS, meta["namespace"], name)
        except (ApiError, OSError) as problem:
            raise ProviderError(f"failed to get service account: {problem}") from problem
        annotations = found["metadata"].get("annotations") or {}
        if any(key not in annotations for key in wanted.required_annotations):
            return None
        keys = (*wanted.required_annotations, *wanted.optional_annotations)
        passed = tuple(sorted((key, annotations[key]) for key in keys if key in annotations))
        uid = found["metadata"]["uid"]
        token = await self._token(pod, name, uid, wanted.audience)
        key: tuple[object, ...] = (meta["namespace"], name, uid, passed)
        if wanted.cache_type == "Token":
            key = (*key, token)
        source = CredentialSource("ServiceAccount", uid, meta["namespace"], name)
        return _Account(source, token, passed, key)

    async def _token(self, pod: Object, name: str, uid: str, audience: str) -> str:
        meta = pod["metadata"]
        request = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"uid": uid},
            "spec": {
                "audiences": [audience],
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": meta["name"],
                    "uid": meta["uid"],
                },
            },
        }
        try:
            answer = await self._env.client.create_subresource(
                SERVICE_ACCOUNTS, meta["namespace"], name, "token", request
            )
        except (ApiError, OSError) as problem:
            raise ProviderError(f"failed to get service account token: {problem}") from problem
        return str(answer["status"]["token"])

    # ---- the program ----

    async def _call_once(self, image: str, account: _Account) -> Object:
        """Pods that need the same credentials at the same time share one call."""
        key = (image, account.token, account.annotations)
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.ensure_future(self._call(image, account))
            task.add_done_callback(lambda _: self._running.pop(key, None))
        return await asyncio.shield(task)

    async def _call(self, image: str, account: _Account) -> Object:
        config, run = self.config, self._env.run_program
        failed = "failed to get credential from external registry credential provider: "
        begin = (
            f"{failed}error execing credential provider plugin {config.name} for image {image}: "
        )
        if run is None:
            raise ProviderError(f"{begin}programs of this node do not run")
        request: Object = {
            "kind": "CredentialProviderRequest",
            "apiVersion": config.api_version,
            "image": image,
        }
        if account.token:
            request["serviceAccountToken"] = account.token
        if account.annotations:
            request["serviceAccountAnnotations"] = dict(account.annotations)
        try:
            code, output, errors = await run(
                [config.program, *config.args],
                _SECONDS,
                stdin=orjson.dumps(request) + b"\n",
                environment=dict(config.env),
                apart=True,
            )
        except TimeoutError as problem:
            raise ProviderError(f"{begin}context deadline exceeded: ") from problem
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise ProviderError(f"{begin}fork/exec {config.program}: {reason}: ") from problem
        if code:
            shown = errors.decode(errors="replace")
            raise ProviderError(f"{begin}exit status {code}: {shown}")
        return _checked_response(output, config.api_version, failed)

    def _entries(self, response: Object, account: _Account) -> tuple[tuple[str, AuthConfig], ...]:
        auth = response.get("auth") or {}
        entries = tuple(
            (
                str(place),
                AuthConfig(str(one.get("username") or ""), str(one.get("password") or "")),
            )
            for place, one in auth.items()
            if isinstance(one, dict)
        )
        wanted = self.config.token
        if (
            account.token
            and wanted is not None
            and wanted.cache_type != "Token"
            and any(one.password == account.token for _, one in entries)
        ):
            raise ProviderError(
                "credential provider plugin returned the service account token as the password "
                "which is not allowed when service account cache type is not set to 'Token'"
            )
        if response.get("cacheKeyType") not in _CACHE_KEYS:
            raise ProviderError(
                "credential provider plugin did not return a valid cacheKeyType: "
                f"{response.get('cacheKeyType') or ''}"
            )
        return entries

    # ---- the cache ----

    def _cached(self, image: str, account: _Account) -> tuple[tuple[str, AuthConfig], ...] | None:
        now = self._env.clock.monotonic()
        self._cache = {key: one for key, one in self._cache.items() if one.expires >= now}
        for base in (image, image.partition("/")[0], _GLOBAL):
            entry = self._cache.get((base, account.cache_key))
            if entry is not None:
                return entry.entries
        return None

    def _store(
        self,
        image: str,
        account: _Account,
        response: Object,
        entries: tuple[tuple[str, AuthConfig], ...],
    ) -> None:
        seconds = self.config.cache_seconds
        if response.get("cacheDuration") is not None:
            try:
                seconds = parse_duration(response["cacheDuration"])
            except (TypeError, ValueError) as problem:
                raise ProviderError(_UNREADABLE) from problem
        if not seconds:
            return
        base = {"Image": image, "Registry": image.partition("/")[0]}.get(
            response["cacheKeyType"], _GLOBAL
        )
        expires = self._env.clock.monotonic() + seconds
        self._cache[base, account.cache_key] = _CacheEntry(entries, expires)


def _checked_response(output: bytes, version: str, failed: str) -> Object:
    try:
        response = orjson.loads(output)
    except ValueError as problem:
        raise ProviderError(
            f"{failed}error reading GVK from response: couldn't get version/kind; json parse "
            f"error: {problem}"
        ) from problem
    if not isinstance(response, dict):
        raise ProviderError(failed + _UNREADABLE)
    actual = str(response.get("apiVersion") or "")
    if actual != version:
        raise ProviderError(
            f"{failed}apiVersion from credential plugin response did not match expected "
            f"apiVersion:{version}, actual apiVersion:{actual}"
        )
    auth = response.get("auth") or {}
    if response.get("kind") != "CredentialProviderResponse" or not isinstance(auth, dict):
        raise ProviderError(failed + _UNREADABLE)
    return response
