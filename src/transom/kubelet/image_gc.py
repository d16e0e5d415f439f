"""Image garbage collection: removes unused images when their disk is too full, least recently used
first.

Keeps images that were pulled recently: a container may be about to use them. The images are the
runtime's; the disk is the host's, on which they are stored.
"""

from __future__ import annotations

import logging

from transom.client.events import WARNING
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.base import KubeletContext
from transom.kubelet.event_texts import event_texts
from transom.kubelet.pull_records import PullRecords
from transom.kubelet.refs import node_ref
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.runtime.api import RuntimeFailure

log = logging.getLogger("transom.kubelet")

PERIOD = 300.0
_EVERYTHING = (1 << 63) - 1
_LONG_AGO = float("-inf")


class ImageGCFailure(Exception):
    """Less was freed than required; the text is the event's."""


class _Record:
    __slots__ = ("detected", "size", "used")

    def __init__(self, detected: float) -> None:
        self.detected = detected
        self.used = _LONG_AGO
        self.size = 0


class _Candidate(NamedTuple):
    used: float
    detected: float
    id: str
    size: int


class ImageGC:
    __slots__ = (
        "_began",
        "_env",
        "_failed_before",
        "_initialized",
        "_longest_age",
        "_pulls",
        "_records",
    )

    def __init__(self, env: KubeletContext, pulls: PullRecords | None = None) -> None:
        self._env = env
        self._pulls = pulls or PullRecords(env)
        self._records: dict[str, _Record] = {}
        self._initialized = False
        self._failed_before = False
        self._began = env.clock.monotonic()
        config = env.config
        ages = FeatureSet(Release(*config.release), config.feature_gates)
        self._longest_age = (
            config.image_maximum_gc_age if ages.enabled("ImageMaximumGCAge") else 0.0
        )

    @property
    def enabled(self) -> bool:
        return self._env.config.image_gc_high_threshold_percent < 100

    def detect(self) -> None:
        """Records which images exist and which are in use. Images found in the first round count as
        old.
        """
        self._detect(self._env.clock.monotonic() if self._initialized else _LONG_AGO)
        self._initialized = True

    async def collect(self) -> None:
        """One round: records the images and frees space when the disk is too full. Repeated
        failures become an event.
        """
        self.detect()
        try:
            await self.free_by_policy()
        except ImageGCFailure as failure:
            log.warning("garbage collection of images: %s", failure)
            if self._failed_before:
                self._env.events.event(
                    node_ref(self._env.config.node_name), WARNING, "ImageGCFailed", str(failure)
                )
            self._failed_before = True
        else:
            self._failed_before = False

    async def free_by_policy(self) -> None:
        """Above the high threshold, frees space down to the low one. Raises ImageGCFailure."""
        disk, config = self._env.host.disk(), self._env.config
        await self._free_old()
        if disk.capacity == 0:
            raise self._failure("InvalidDiskCapacity", "invalid capacity 0 on image filesystem")
        available = min(disk.available, disk.capacity)
        usage = 100 - available * 100 // disk.capacity
        if usage < config.image_gc_high_threshold_percent:
            return
        wanted = disk.capacity * (100 - config.image_gc_low_threshold_percent) // 100 - available
        freed = await self._free(wanted)
        if freed < wanted:
            raise self._failure(
                "FreeDiskSpaceFailed",
                event_texts(config.release).image_space_missing(
                    wanted, freed, usage, disk.capacity
                ),
            )

    async def _free_old(self) -> None:
        """Removes images that were not used for imageMaximumGCAge, once the kubelet has run that
        long.
        """
        age, now = self._longest_age, self._env.clock.monotonic()
        if not age or now - self._began <= age:
            return
        in_use = self._detect(now)
        for image, record in [*self._records.items()]:
            unused = now - max(record.used, self._began)
            if image in in_use or unused <= age:
                continue
            if now - record.detected < self._env.config.image_minimum_gc_age:
                continue
            try:
                await self._env.runtime.remove_image(image)
            except RuntimeFailure as problem:
                raise ImageGCFailure(str(problem)) from problem
            self._records.pop(image, None)

    async def delete_unused(self) -> None:
        """Removes all unused images to free disk space. Raises ImageGCFailure."""
        await self._free(_EVERYTHING)

    def _failure(self, reason: str, message: str) -> ImageGCFailure:
        self._env.events.event(node_ref(self._env.config.node_name), WARNING, reason, message)
        return ImageGCFailure(message)

    def _detect(self, detected: float) -> set[str]:
        runtime, now = self._env.runtime, self._env.clock.monotonic()
        # A container references its image by what the runtime reported: an id, or the digest that
        # it was pulled by.
        used = {container.image_ref for container in runtime.containers()}
        used |= {mount.image for one in runtime.containers() for mount in one.mounts if mount.image}
        in_use = {
            image.id if (image := runtime.image(reference)) is not None else reference
            for reference in used
        }
        config = self._env.config
        pause = runtime.image(
            config.pod_infra_image or self._env.os.default_pause_image(config.release)
        )
        if pause is not None:
            in_use.add(pause.id)
        present = set()
        for image in runtime.images():
            present.add(image.id)
            if image.pinned:
                in_use.add(image.id)
            record = self._records.get(image.id)
            if record is None:
                record = self._records[image.id] = _Record(detected)
            if image.id in in_use:
                record.used = now
            record.size = image.size
        for gone in self._records.keys() - present:
            del self._records[gone]
        return in_use

    async def _free(self, wanted: int) -> int:
        """Returns the bytes freed."""
        now, started = self._env.clock.monotonic(), self._env.clock.time()
        in_use = self._detect(now)
        candidates = sorted(
            _Candidate(record.used, record.detected, image, record.size)
            for image, record in self._records.items()
            if image not in in_use
        )
        freed = 0
        problems: list[str] = []
        for candidate in candidates:
            if (
                candidate.used >= now
                or now - candidate.detected < self._env.config.image_minimum_gc_age
            ):
                continue
            try:
                await self._env.runtime.remove_image(candidate.id)
            except RuntimeFailure as problem:
                problems.append(str(problem))
                continue
            self._records.pop(candidate.id, None)
            freed += candidate.size
            if freed >= wanted:
                break
        if problems:
            text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise ImageGCFailure(
                f"wanted to free {wanted} bytes, but freed {freed} bytes space with errors "
                f"in image deletion: {text}"
            )
        self._pulls.prune({image.id for image in self._env.runtime.images()}, started)
        return freed
