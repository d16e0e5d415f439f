"""Ensures that images are present: applies the pull policy, pulls one image at a time, backs off
after failures.

Records all image events. The runtime pulls; `credentials.py` selects the credentials.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from transom.client.backoff import KeyedBackoff
from transom.client.events import NORMAL, WARNING
from transom.client.ratelimit import TokenBucket
from transom.client.resources import SECRETS
from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.kubelet import credentials, imagenames
from transom.kubelet.base import KubeletContext
from transom.kubelet.credential_providers import CredentialProviders
from transom.kubelet.credentials import CredentialError, TrackedAuth
from transom.kubelet.event_texts import event_texts
from transom.kubelet.failures import ContainerFailure
from transom.kubelet.imagenames import ImageNameError
from transom.kubelet.pull_records import PullRecords
from transom.kubelet.refs import container_ref, pod_ref
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.runtime.api import Image, RuntimeFailure, SandboxConfig

log = logging.getLogger("transom.kubelet")

_QPS_EXCEEDED = "pull QPS exceeded"
# A pull from a real registry takes at least this long, even for an image that is present, so
# serialized pulls never reach the default limit of 5 per second. Runtimes whose images are on this
# machine are faster.
_FASTEST_PULL = 1.0
_CLOCK_RESOLUTION = 0.001


class _PullFailure(Exception):
    """The error text as events show it."""


class _ImageRequest(NamedTuple):
    pod: Object
    reference: Object  # the object of its events
    image: str
    policy: str | None


class _PulledImage(NamedTuple):
    reference: str
    used: TrackedAuth | None  # the credential with which it was pulled


class ImageManager:
    __slots__ = (
        "_backoff",
        "_bucket",
        "_env",
        "_providers",
        "_pull_errors",
        "_records",
        "_texts",
        "_turn",
    )

    def __init__(self, env: KubeletContext, records: PullRecords | None = None) -> None:
        config = env.config
        self._env = env
        self._providers = CredentialProviders(env)
        self._records = records or PullRecords(env)
        self._backoff = KeyedBackoff()
        self._pull_errors: dict[str, str] = {}  # the last one by back-off key
        self._texts = event_texts(config.release)
        self._turn: AbstractAsyncContextManager[None] | None = None
        if config.serialize_image_pulls:
            self._turn = asyncio.Lock()
        elif config.max_parallel_image_pulls is not None:
            self._turn = asyncio.Semaphore(config.max_parallel_image_pulls)
        self._bucket = (
            TokenBucket(env.clock, config.registry_pull_qps, config.registry_burst)
            if config.registry_pull_qps > 0
            else None
        )

    async def ensure(self, pod: Object, container: Object, sandbox: SandboxConfig | None) -> Image:
        """Ensures that the image is on the node. Raises ContainerFailure with ErrImagePull,
        ImagePullBackOff, ErrImageNeverPull, InvalidImageName or ImageInspectError.
        """
        request = _ImageRequest(
            pod,
            container_ref(pod, container["name"]),
            container.get("image") or "",
            container.get("imagePullPolicy"),
        )
        try:
            return await self._ensure(request, sandbox)
        except ContainerFailure as failure:
            self._record_event(request, WARNING, "Failed", f"Error: {failure.reason}")
            raise

    async def ensure_volume(
        self, pod: Object, source: Object, sandbox: SandboxConfig | None
    ) -> Image:
        """The image of an image volume. Its events are those of the pod; containers that mount it
        report a failure themselves.
        """
        reference, policy = source.get("reference") or "", source.get("pullPolicy")
        return await self._ensure(_ImageRequest(pod, pod_ref(pod), reference, policy), sandbox)

    async def _ensure(self, request: _ImageRequest, sandbox: SandboxConfig | None) -> Image:
        quoted = go_quote(request.image)
        try:
            name = imagenames.with_default_tag(request.image)
        except ImageNameError as problem:
            message = (
                f"Failed to apply default image tag {quoted}: couldn't parse image reference "
                f"{quoted}: {problem}"
            )
            raise self._failure(request, "InspectFailed", "InvalidImageName", message) from problem
        try:
            present = self._env.runtime.image(name)
        except RuntimeFailure as problem:
            message = f"Failed to inspect image {quoted}: {problem}"
            raise self._failure(request, "InspectFailed", "ImageInspectError", message) from problem
        policy = request.policy
        usable = present is not None and policy != "Always"
        if usable and present is not None and await self._may_use(request, name, present):
            text = f"Container image {quoted} already present on machine"
            if self._records.enabled:
                text += " and can be accessed by the pod"
            self._record_event(request, NORMAL, "Pulled", text)
            return present
        if policy == "Never":  # the same error hides from the pod that the node has the image
            message = f"Container image {quoted} is not present with pull policy of Never"
            raise self._failure(request, "ErrImageNeverPull", "ErrImageNeverPull", message)
        return await self._pull_with_backoff(request, name, sandbox)

    async def _may_use(self, request: _ImageRequest, name: str, present: Image) -> bool:
        """Whether the pod may use the image of the node without a pull that proves it."""
        records, image = self._records, request.image
        if not records.needs_verification(image, present.id):
            return True
        if records.can_be_used_by_all(image, present.id):
            return True
        try:
            offered = await self._credentials(request.pod, name)
        except _PullFailure as problem:
            raise ContainerFailure(str(problem), str(problem)) from problem
        return records.accepts(image, present.id, offered)

    async def _pull_with_backoff(
        self, request: _ImageRequest, name: str, sandbox: SandboxConfig | None
    ) -> Image:
        try:
            self._records.pull_begins(request.image)
        except OSError as problem:
            message = (
                f"Failed to record image pull intent for container image "
                f"{go_quote(request.image)}: failed to record image pull intent: {problem}"
            )
            raise ContainerFailure(str(problem), message) from problem
        try:
            found, used = await self._pull_counted(request, name, sandbox)
        except ContainerFailure:
            self._records.pull_failed(request.image)
            raise
        self._records.pull_succeeded(request.image, found.id, used)
        return found

    async def _pull_counted(
        self, request: _ImageRequest, name: str, sandbox: SandboxConfig | None
    ) -> tuple[Image, TrackedAuth | None]:
        clock, pod = self._env.clock, request.pod
        start = clock.monotonic()
        quoted = go_quote(request.image)
        key = f"{pod['metadata']['uid']}_{request.image}"
        if self._backoff.left(key, start) > 0:
            message = f"Back-off pulling image {quoted}"
            self._record_event(request, NORMAL, "BackOff", message)
            if key in self._pull_errors:
                message += f": {self._pull_errors[key]}"
            raise ContainerFailure("ImagePullBackOff", message)
        self._pull_errors.pop(key, None)
        self._record_event(request, NORMAL, "Pulling", f"Pulling image {quoted}")
        pull_started = start
        try:
            if self._turn is None:
                pulled = await self._pull(pod, name, sandbox)
            else:
                async with self._turn:
                    pull_started = clock.monotonic()
                    pulled = await self._pull(pod, name, sandbox)
        except _PullFailure as problem:
            self._record_event(
                request, WARNING, "Failed", f"Failed to pull image {quoted}: {problem}"
            )
            failed = clock.monotonic()
            self._backoff.next(key, failed, failed)
            if self._texts.kept_pull_errors:
                self._pull_errors[key] = f"ErrImagePull: {problem}"
            raise ContainerFailure("ErrImagePull", str(problem)) from problem
        found = (
            self._env.runtime.image(pulled.reference)
            or self._env.runtime.image(name)
            or Image(pulled.reference, (), (), 0)
        )
        now = clock.monotonic()
        text = self._texts.image_pulled(request.image, now - pull_started, now - start, found.size)
        self._record_event(request, NORMAL, "Pulled", text)
        self._backoff.collect(now)
        self._pull_errors = {k: v for k, v in self._pull_errors.items() if self._backoff.get(k)}
        return found, pulled.used

    def retry_after(self, pod: Object, container: Object) -> float:
        """Seconds until a pull of the container's image is retried; 0 for immediately."""
        key = f"{pod['metadata']['uid']}_{container.get('image') or ''}"
        return self._backoff.left(key, self._env.clock.monotonic())

    async def _pull(self, pod: Object, name: str, sandbox: SandboxConfig | None) -> _PulledImage:
        await self._wait_for_token()
        texts: list[str] = []
        # Without credentials, the pull is anonymous.
        for used in await self._credentials(pod, name) or (None,):
            try:
                reference = await self._env.runtime.pull_image(
                    name, used.auth if used is not None else None, sandbox
                )
            except RuntimeFailure as problem:
                if str(problem) not in texts:
                    texts.append(str(problem))
            else:
                if reference:
                    return _PulledImage(reference, used)
                texts.append(f"imageRef of image {go_quote(name)} is not set")
        raise _PullFailure(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")

    async def _wait_for_token(self) -> None:
        """Raises _PullFailure when pulls exceed --registry-qps."""
        while self._bucket is not None and not self._bucket.allow():
            wait = self._bucket.wait()
            if self._turn is None or wait > _FASTEST_PULL:
                raise _PullFailure(_QPS_EXCEEDED)
            # event loop timers may fire early by this much
            await self._env.clock.sleep(wait + _CLOCK_RESOLUTION)

    async def _credentials(self, pod: Object, name: str) -> Sequence[TrackedAuth]:
        """The credentials to try in turn. Raises _PullFailure."""
        secrets = []
        meta = pod["metadata"]
        for reference in pod["spec"].get("imagePullSecrets") or ():
            try:
                secrets.append(
                    await self._env.client.get(
                        SECRETS, meta["namespace"], reference.get("name") or ""
                    )
                )
            except (ApiError, OSError) as problem:
                log.warning(
                    "the pull secret %s/%s of the pod %s cannot be read: %s",
                    meta["namespace"],
                    reference.get("name"),
                    meta["name"],
                    problem,
                )
        repository = imagenames.parse(name).repository
        try:
            found = credentials.lookup_credentials(secrets, repository)
        except CredentialError as problem:
            raise _PullFailure(str(problem)) from problem
        return [*found, *await self._providers.lookup(pod, repository)]

    def _failure(
        self, request: _ImageRequest, event: str, reason: str, message: str
    ) -> ContainerFailure:
        self._record_event(request, WARNING, event, message)
        return ContainerFailure(reason, message)

    def _record_event(self, request: _ImageRequest, kind: str, reason: str, message: str) -> None:
        self._env.events.event(request.reference, kind, reason, message)
