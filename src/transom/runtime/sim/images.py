"""The images on one node: pulling, finding and removing them. The catalogue defines which images
exist.

Docker and containerd differ in how they choose from a manifest list and in when they notice that an
image is for another system; that is here, their error texts are in `texts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal

from transom.kit.clock import Clock
from transom.kit.named_tuple import NamedTuple
from transom.machines.inodes import DiskQuota
from transom.runtime.api import AuthConfig, Image, RuntimeFailure
from transom.runtime.sim.catalogue import (
    Catalogue,
    CatalogueEntry,
    CatalogueImage,
    CataloguePlatform,
    ImageMissing,
    ResolvedImage,
    default_catalogue,
)
from transom.runtime.sim.names import ImageReference, familiar_name, parse_image_name
from transom.runtime.sim.texts import RuntimeTexts
from transom.windows.builds import hyperv_isolation, process_isolation

_VIEWS: dict[tuple[str, tuple[str, ...], bool], Image] = {}  # shared by all nodes


class ImageRules(NamedTuple):
    """The properties that decide which images run on a node."""

    os: Literal["linux", "windows"]
    architecture: str
    build: int  # of Windows; 0 on Linux
    docker: bool
    stable_abi: bool  # whether the runtime runs older images on newer hosts


class PullSpeed(NamedTuple):
    """The registry's latency, bytes per second, and the maximum duration of a download."""

    round_trip: float = 0.1
    rate: float = 1e9
    longest: float = 0.75


class _Stored:
    __slots__ = ("digests", "spec", "tags")

    def __init__(self, spec: CatalogueImage) -> None:
        self.spec = spec
        self.tags: tuple[str, ...] = ()
        self.digests: tuple[str, ...] = ()


class ImageStore:
    __slots__ = (
        "_by_id",
        "_by_name",
        "_catalogue",
        "_clock",
        "_pulling",
        "_registry_problem",
        "_rules",
        "_space",
        "_speed",
        "_texts",
        "used",
    )

    def __init__(
        self,
        catalogue: Catalogue | None,
        rules: ImageRules,
        texts: RuntimeTexts,
        clock: Clock,
        space: DiskQuota,
        speed: PullSpeed,
        registry_problem: Callable[[], str | None],
    ) -> None:
        """Without a catalogue it uses the built-in one, which is read with the first image."""
        self._catalogue = catalogue
        self._rules = rules
        self._texts = texts
        self._clock = clock
        self._space = space
        self._speed = speed
        self._by_id: dict[str, _Stored] = {}
        self._by_name: dict[str, str] = {}
        self._pulling: dict[str, asyncio.Future[None]] = {}
        self.used = 0
        self._registry_problem = registry_problem

    # Lookup

    def _look_up(self, reference: ImageReference) -> ResolvedImage:
        return (self._catalogue or default_catalogue()).find(reference)

    def spec(self, image: str) -> CatalogueImage | None:
        """By name, digest or id."""
        stored = self._find(image)
        return stored.spec if stored else None

    def view(self, image: str) -> Image | None:
        stored = self._find(image)
        return _view(stored, self._rules.docker) if stored else None

    def views(self) -> list[Image]:
        return [_view(stored, self._rules.docker) for stored in self._by_id.values()]

    def pulled_ref(self, spec: CatalogueImage) -> str:
        """What a pull returns: docker the digest, containerd the id."""
        return _repository_digest(spec, self._rules.docker) if self._rules.docker else spec.id

    def shown_ref(self, spec: CatalogueImage) -> str:
        """A container's `imageID`."""
        digest = _repository_digest(spec, self._rules.docker)
        return f"docker-pullable://{digest}" if self._rules.docker else digest

    def shown_name(self, spec: CatalogueImage, requested: str) -> str:
        """A container's `image`: the first tag, otherwise what was requested."""
        stored = self._by_id.get(spec.id)
        return (
            _view(stored, self._rules.docker).tags[0]
            if stored is not None and stored.tags
            else requested
        )

    def _find(self, image: str) -> _Stored | None:
        stored = self._by_id.get(image)
        if stored is not None:
            return stored
        identity = self._by_name.get(str(parse_image_name(image)))
        if identity is None and len(image) == 64:
            return self._by_id.get(f"sha256:{image}")
        return self._by_id[identity] if identity is not None else None

    # Pulling

    async def pull(
        self, image: str, auth: AuthConfig | None, *, hyperv: bool = False
    ) -> CatalogueImage:
        reference = parse_image_name(image)
        problem = self._registry_problem()
        if problem is not None:
            await self._clock.sleep(self._speed.longest)
            raise self._texts.registry_unreachable(reference, problem)
        await self._clock.sleep(self._speed.round_trip)
        resolved = self._resolve(reference)
        self._authorize(reference, resolved.entry, auth)
        spec = resolved.spec(self._choose(resolved, hyperv))
        if spec.id not in self._by_id:
            await self._download(reference, spec)
        self._tag(reference, spec)
        return spec

    def _resolve(self, reference: ImageReference) -> ResolvedImage:
        try:
            return self._look_up(reference)
        except ImageMissing as missing:
            texts = self._texts
            failures: Mapping[str, Callable[[ImageReference], RuntimeFailure]] = {
                "host": texts.no_host,
                "repository": texts.no_repository,
                "tag": texts.no_tag,
            }
            raise failures[missing.what](reference) from None

    def _authorize(
        self, reference: ImageReference, entry: CatalogueEntry, auth: AuthConfig | None
    ) -> None:
        private = entry.private
        if not private:
            return
        if auth is None or not auth.username:
            raise self._texts.no_repository(reference)
        if isinstance(private, Mapping) and private.get(auth.username) != auth.password:
            raise self._texts.wrong_password(reference)

    def _choose(self, resolved: ResolvedImage, hyperv: bool) -> CataloguePlatform:
        rules = self._rules
        if not resolved.is_list:
            return self._check_single(resolved.reference, resolved.platforms[0])
        mine = (rules.os, rules.architecture)
        fitting = [
            p
            for p in resolved.platforms
            if (p.os, p.architecture) == mine and self._fits(p, hyperv)
        ]
        if not fitting:
            raise self._texts.no_platform(resolved.reference, self._platform_text())
        return max(fitting, key=lambda p: (p.build == rules.build, p.build))

    def _check_single(
        self, reference: ImageReference, platform: CataloguePlatform
    ) -> CataloguePlatform:
        """A single manifest involves no choice, and a mismatch shows late: containerd checks
        nothing, though a Windows node cannot unpack a Linux layer.
        """
        rules = self._rules
        if platform.os != rules.os and (rules.docker or rules.os == "windows"):
            raise self._texts.other_system(reference, platform.os)
        if platform.build > rules.build > 0:
            failure = self._texts.too_new(reference, platform.version, f"10.0.{rules.build}")
            if failure is not None:
                raise failure
        return platform

    def _fits(self, platform: CataloguePlatform, hyperv: bool) -> bool:
        """Docker accepts whatever is not newer than the host and fails later; containerd requires
        the same build.
        """
        rules = self._rules
        if not platform.build:
            return True
        if rules.docker or hyperv:
            return hyperv_isolation(rules.build, platform.build)
        return process_isolation(rules.build, platform.build, stable_abi=rules.stable_abi)

    def runs_as_process(self, build: int) -> bool:
        """Whether an image of the build runs on this node's own kernel."""
        return process_isolation(self._rules.build, build, stable_abi=self._rules.stable_abi)

    def _platform_text(self) -> str:
        rules = self._rules
        return f"{rules.os}/{rules.architecture}" + (f" 10.0.{rules.build}" if rules.build else "")

    async def _download(self, reference: ImageReference, spec: CatalogueImage) -> None:
        """A second pull waits for the first."""
        other = self._pulling.get(spec.id)
        if other is not None:
            await asyncio.shield(other)
            if spec.id in self._by_id:
                return
        done = self._pulling[spec.id] = asyncio.get_running_loop().create_future()
        try:
            await self._clock.sleep(min(self._speed.longest, spec.size / self._speed.rate))
            self._store(reference, spec)
        finally:
            del self._pulling[spec.id]
            done.set_result(None)

    def _store(self, reference: ImageReference, spec: CatalogueImage) -> None:
        if spec.id in self._by_id:
            return
        if not self._space.take(spec.size):
            raise self._texts.no_space(reference)
        self.used += spec.size
        self._by_id[spec.id] = _Stored(spec)

    def _tag(self, reference: ImageReference, spec: CatalogueImage) -> None:
        stored = self._by_id[spec.id]
        digest = f"{reference.repository}@{spec.digest}"
        if digest not in stored.digests:
            stored.digests += (digest,)
        self._by_name[digest] = spec.id
        if reference.digest:
            return
        name = str(reference)
        before = self._by_name.get(name)
        if before is not None and before != spec.id and before in self._by_id:
            other = self._by_id[before]
            other.tags = tuple(tag for tag in other.tags if tag != name)
        self._by_name[name] = spec.id
        if name not in stored.tags:
            stored.tags += (name,)

    # Persistence

    def save(self) -> list[Any]:
        return [
            {"tags": stored.tags, "digests": stored.digests, "platform": stored.spec.platform}
            for stored in self._by_id.values()
        ]

    def restore(self, saved: list[Any]) -> None:
        """Skips images that no registry has any more: only their names are known."""
        for row in saved:
            platform = CataloguePlatform(*row["platform"])
            try:
                spec = self._look_up(parse_image_name((*row["tags"], *row["digests"])[0])).spec(
                    platform
                )
            except (ImageMissing, IndexError):
                continue
            stored = self._by_id[spec.id] = _Stored(spec)
            stored.tags, stored.digests = tuple(row["tags"]), tuple(row["digests"])
            self._by_name |= dict.fromkeys((*stored.tags, *stored.digests), spec.id)
            self._space.take(spec.size)
            self.used += spec.size

    def known_spec(
        self, identity: str, name: str, platform: CataloguePlatform
    ) -> CatalogueImage | None:
        """For an image that a container was created from, whether the node still has it or not."""
        stored = self._by_id.get(identity)
        if stored is not None:
            return stored.spec
        try:
            return self._look_up(parse_image_name(name)).spec(platform)
        except ImageMissing:
            return None

    # Removing

    def remove(self, image: str) -> None:
        """With all its names. A no-op for an unknown image."""
        stored = self._find(image)
        if stored is None:
            return
        del self._by_id[stored.spec.id]
        for name in (*stored.tags, *stored.digests):
            self._by_name.pop(name, None)
        self._space.take(-stored.spec.size)
        self.used -= stored.spec.size


def _repository_digest(spec: CatalogueImage, docker: bool) -> str:
    return f"{familiar_name(spec.repository) if docker else spec.repository}@{spec.digest}"


def _view(stored: _Stored, docker: bool) -> Image:
    spec = stored.spec
    key = (spec.id, stored.tags + stored.digests, docker)
    view = _VIEWS.get(key)
    if view is None:
        shown: Callable[[str], str] = familiar_name if docker else str
        user = spec.user.partition(":")[0]
        uid = int(user) if user.isdigit() else None
        view = _VIEWS[key] = Image(
            spec.id,
            tuple(map(shown, stored.tags)),
            tuple(map(shown, stored.digests)),
            spec.size,
            uid,
            "" if uid is not None else user,
            user_unknown=spec.unlisted and spec.platform.os == "linux",
        )
    return view
