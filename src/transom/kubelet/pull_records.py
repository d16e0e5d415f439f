"""Records of the images that the kubelet pulled and of the credentials it used, so that a pod gets
an image of the node only with a credential for it (KubeletEnsureSecretPulledImages).

The files are Kubernetes' own, in `image_manager` of the kubelet's directory.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import orjson

from transom.kit.clock import parse_rfc3339, rfc3339
from transom.kubelet import imagenames
from transom.kubelet.base import KubeletContext
from transom.kubelet.credentials import CredentialSource, TrackedAuth
from transom.kubelet.features import pull_record_version
from transom.kubelet.imagenames import ImageNameError
from transom.machinery import gojson
from transom.machinery.objects import Object
from transom.machines.smallfiles import list_small_directory, read_small_file

log = logging.getLogger("transom.kubelet")

VERIFICATION_POLICIES: Final = (
    "NeverVerify",
    "NeverVerifyPreloadedImages",
    "NeverVerifyAllowlistedImages",
    "AlwaysVerify",
)
DEFAULT_POLICY: Final = "NeverVerifyPreloadedImages"
_PREFIX: Final = "sha256-"
_MOST_SECRETS: Final = 100  # of one record, that are added while an image is only looked up


def allowlist_pattern(pattern: str) -> str:
    """A pattern of preloadedImagesVerificationAllowlist; it ends with / if it is a prefix. Raises
    ValueError.
    """
    if pattern != pattern.strip():
        raise ValueError(f"leading/trailing spaces are not allowed: {pattern}")
    wildcard = pattern.endswith("/*")
    trimmed = pattern[:-1] if wildcard else pattern
    if not trimmed:
        raise ValueError(f"the supplied pattern is too short: {pattern}")
    if "*" in trimmed:
        raise ValueError(
            f"not a valid wildcard pattern, only patterns ending with '/*' are allowed: {pattern}"
        )
    if wildcard:
        if trimmed == "/":
            raise ValueError("at least registry hostname is required")
        return trimmed
    try:
        name = _without_tag(trimmed)
    except ImageNameError as problem:
        raise ValueError(f"failed to parse as an image name: {problem}") from problem
    if name != trimmed:
        raise ValueError(f"neither tag nor digest is accepted in an image reference: {pattern}")
    return trimmed


def _without_tag(image: str) -> str:
    """The image as written, without tag and digest. Raises ImageNameError."""
    name = imagenames.parse(image)
    if name.digest:
        image = image.removesuffix(f"@{name.digest}")
    return image.removesuffix(f":{name.tag}") if name.tag else image


class PullRecords:
    __slots__ = ("_allowed", "_env", "_pulled", "_pulling", "_version")

    def __init__(self, env: KubeletContext) -> None:
        config = env.config
        version = pull_record_version(config.release, config.feature_gates)
        self._env = env
        self._version = f"kubelet.config.k8s.io/{version}" if version else ""
        self._allowed = tuple(
            allowlist_pattern(text) for text in config.preloaded_images_verification_allowlist
        )
        join = env.os.join
        self._pulling = join(config.root_dir, "image_manager", "pulling")
        self._pulled = join(config.root_dir, "image_manager", "pulled")

    @property
    def enabled(self) -> bool:
        return bool(self._version)

    def recover(self) -> None:
        """Once, at the start: a pull that the last kubelet did not record has ended if the image
        exists. It is recorded without a credential, so pods must prove that they may use it.
        """
        if not self.enabled:
            return
        by_name = {
            name: image
            for image in self._env.runtime.images()
            for name in (*image.tags, *image.digests)
        }
        for name in self._names(self._pulling):
            intent = self._read(self._pulling, name)
            text = str(intent.get("image") or "") if intent is not None else ""
            image = by_name.get(text)
            if image is not None:
                self._merge(text, image.id, None, None)
                self._remove(self._pulling, name)

    # ---- pulls ----

    def pull_begins(self, image: str) -> None:
        """Raises OSError."""
        if self.enabled:
            intent = {"kind": "ImagePullIntent", "apiVersion": self._version, "image": image}
            self._write(self._pulling, _file_name(image), intent)

    def pull_failed(self, image: str) -> None:
        if self.enabled:
            self._remove(self._pulling, _file_name(image))

    def pull_succeeded(self, image: str, image_id: str, used: TrackedAuth | None) -> None:
        if not self.enabled:
            return
        source = used.source if used is not None else None
        try:
            self._merge(image, image_id, source, used, everyone=source is None)
        except (OSError, ImageNameError) as problem:
            log.warning("the pull of image %s cannot be recorded: %s", image, problem)
            return
        self._remove(self._pulling, _file_name(image))

    # ---- access ----

    def needs_verification(self, image: str, image_id: str) -> bool:
        """Whether the credentials of a pod decide if it can use the image that the node has."""
        if not self.enabled:
            return False
        policy = self._env.config.image_pull_credentials_verification_policy or DEFAULT_POLICY
        if policy == "NeverVerify":
            return False
        if policy == "NeverVerifyAllowlistedImages":
            return not self._is_allowed(image)
        if policy == "NeverVerifyPreloadedImages":
            return self._was_pulled(image, image_id)
        return True

    def can_be_used_by_all(self, image: str, image_id: str) -> bool:
        """Whether the image was pulled without a credential of a pod."""
        return bool(self._credentials(image, image_id).get("nodePodsAccessible"))

    def accepts(self, image: str, image_id: str, offered: Sequence[TrackedAuth]) -> bool:
        """Whether the image was pulled with one of the credentials, or with one of the same
        Secrets or ServiceAccounts.
        """
        credentials = self._credentials(image, image_id)
        secrets = credentials.get("kubernetesSecrets") or []
        for one in offered:
            if one.source is None or one.source.kind != "Secret":
                continue
            for known in secrets:
                same_hash = (
                    bool(known.get("credentialHash")) and known["credentialHash"] == one.hash
                )
                same_secret = _same(known, one.source)
                if same_hash or same_secret:
                    if same_hash != same_secret and len(secrets) < _MOST_SECRETS:
                        self._remember(image, image_id, one)
                    return True
        accounts = credentials.get("kubernetesServiceAccounts") or []
        own = next((one.source for one in offered if _is_account(one)), None)
        return own is not None and any(_same(known, own) for known in accounts)

    def prune(self, present: Collection[str], until: float) -> None:
        """Removes the records of images that the node no longer has."""
        if not self.enabled:
            return
        for name in self._names(self._pulled):
            record = self._read(self._pulled, name)
            if record is None or record.get("imageRef") in present:
                continue
            try:
                updated = parse_rfc3339(str(record.get("lastUpdatedTime") or ""))
            except ValueError:
                updated = 0.0
            if updated < until:
                self._remove(self._pulled, name)

    def _is_allowed(self, image: str) -> bool:
        try:
            name = _without_tag(image)
        except ImageNameError:
            name = image
        return any(
            name.startswith(allowed) if allowed.endswith("/") else name == allowed
            for allowed in self._allowed
        )

    def _was_pulled(self, image: str, image_id: str) -> bool:
        exists = self._env.host.files.exists
        join = self._env.os.join
        return exists(join(self._pulled, _file_name(image_id))) or exists(
            join(self._pulling, _file_name(image))
        )

    def _credentials(self, image: str, image_id: str) -> Object:
        record = self._read(self._pulled, _file_name(image_id)) or {}
        mapping = record.get("credentialMapping")
        if record.get("imageRef") != image_id or not isinstance(mapping, dict):
            return {}
        try:
            found = mapping.get(_without_tag(image))
        except ImageNameError:
            return {}
        return found if isinstance(found, dict) else {}

    # ---- files ----

    def _remember(self, image: str, image_id: str, tracked: TrackedAuth) -> None:
        try:
            self._merge(image, image_id, tracked.source, tracked)
        except (OSError, ImageNameError) as problem:
            log.warning("the pull of image %s cannot be recorded: %s", image, problem)

    def _merge(
        self,
        image: str,
        image_id: str,
        source: CredentialSource | None,
        used: TrackedAuth | None,
        *,
        everyone: bool = False,
    ) -> None:
        """Adds a credential to the image's record. Raises OSError and ImageNameError."""
        name = _without_tag(image)
        file = _file_name(image_id)
        record = self._read(self._pulled, file)
        before = record.get("credentialMapping") if record is not None else None
        mapping = dict(before) if isinstance(before, dict) else {}
        merged = _merged(mapping.get(name), source, used, everyone=everyone)
        if record is not None and merged == mapping.get(name):
            return
        if merged is not None:
            mapping[name] = merged
        made: Object = {
            "kind": "ImagePulledRecord",
            "apiVersion": self._version,
            "lastUpdatedTime": rfc3339(self._env.clock.time()),
            "imageRef": image_id,
        }
        if mapping:
            made["credentialMapping"] = dict(sorted(mapping.items()))
        self._write(self._pulled, file, made)

    def _names(self, directory: str) -> list[str]:
        try:
            names = list_small_directory(self._env.host.files, directory)
        except OSError:
            return []
        return [name for name in names if name.startswith(_PREFIX) and not name.endswith(".tmp")]

    def _read(self, directory: str, name: str) -> Object | None:
        try:
            data = read_small_file(self._env.host.files, self._env.os.join(directory, name))
            content = orjson.loads(data)
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def _write(self, directory: str, name: str, content: Object) -> None:
        files, path = self._env.host.files, self._env.os.join(directory, name)
        files.mkdir(directory, 0o700)
        files.write(f"{path}.tmp", gojson.escape_html(orjson.dumps(content)), 0o600)
        if files.exists(path):
            files.remove(path)
        files.rename(f"{path}.tmp", path)

    def _remove(self, directory: str, name: str) -> None:
        try:
            self._env.host.files.remove(self._env.os.join(directory, name))
        except FileNotFoundError:
            return
        except OSError as problem:
            log.warning("the record %s cannot be removed: %s", name, problem)


def _file_name(text: str) -> str:
    return _PREFIX + hashlib.sha256(text.encode()).hexdigest()


def _is_account(tracked: TrackedAuth) -> bool:
    return tracked.source is not None and tracked.source.kind == "ServiceAccount"


def _same(known: Any, source: CredentialSource) -> bool:
    return isinstance(known, dict) and (
        known.get("uid"),
        known.get("namespace"),
        known.get("name"),
    ) == (source.uid, source.namespace, source.name)


def _merged(
    before: Any, source: CredentialSource | None, used: TrackedAuth | None, *, everyone: bool
) -> Object | None:
    known = before if isinstance(before, dict) else None
    if known is not None and known.get("nodePodsAccessible"):
        return known
    if everyone:
        return {"nodePodsAccessible": True}
    if source is None or used is None:
        return known
    entry = {"uid": source.uid, "namespace": source.namespace, "name": source.name}
    field = "kubernetesServiceAccounts"
    if source.kind == "Secret":
        field, entry = "kubernetesSecrets", {**entry, "credentialHash": used.hash}
    others = _others((known or {}).get(field) or (), source)
    entries = sorted([*others, entry], key=lambda one: (one["namespace"], one["name"], one["uid"]))
    return {**(known or {}), field: entries}


def _others(entries: Iterable[Any], source: CredentialSource) -> list[Object]:
    return [one for one in entries if isinstance(one, dict) and not _same(one, source)]
