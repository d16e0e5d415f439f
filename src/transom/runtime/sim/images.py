"""The images on one node: pulling, finding and removing them. Which exist at all is the catalogue's knowledge.

Docker and containerd differ in how they choose from a manifest list and in when they notice that an image is for another
system; that is here, their words are in `texts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from transom.hosts.nodes import Space
from transom.kit.clock import Clock
from transom.runtime.api import Auth, Image, RuntimeFailure
from transom.runtime.sim.catalogue import Catalogue, Entry, Missing, Platform, Resolved, Spec
from transom.runtime.sim.names import Reference, familiar, parse
from transom.runtime.sim.texts import Texts
from transom.windows.builds import hyperv_isolation, process_isolation

_VIEWS: dict[tuple[str, tuple[str, ...], bool], Image] = {}  # shared by all nodes


class Rules(NamedTuple):
    """What decides which images run on a node."""

    os: Literal["linux", "windows"]
    architecture: str
    build: int  # of Windows; 0 on Linux
    docker: bool
    stable_abi: bool  # the runtime knows that newer hosts take older images


class PullSpeed(NamedTuple):
    """Bytes a second, and how long a pull takes at most."""

    rate: float = 1e9
    longest: float = 0.75


class _Stored:
    __slots__ = ("digests", "spec", "tags")

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.tags: tuple[str, ...] = ()
        self.digests: tuple[str, ...] = ()


class ImageStore:
    __slots__ = (
        "_by_id", "_by_name", "_catalogue", "_clock", "_pulling", "_rules", "_space", "_speed", "_texts", "outside", "used"
    )  # fmt: skip

    def __init__(
        self, catalogue: Catalogue, rules: Rules, texts: Texts, clock: Clock, space: Space, speed: PullSpeed
    ) -> None:
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
        # Why registries are not reached, "" when they do not answer; None when they are.
        self.outside: Callable[[], str | None] = lambda: None

    # Looking

    def spec(self, image: str) -> Spec | None:
        """By name, digest or id."""
        stored = self._find(image)
        return stored.spec if stored else None

    def view(self, image: str) -> Image | None:
        stored = self._find(image)
        return _view(stored, self._rules.docker) if stored else None

    def views(self) -> list[Image]:
        return [_view(stored, self._rules.docker) for stored in self._by_id.values()]

    def pulled_ref(self, spec: Spec) -> str:
        """What a pull answers: docker the digest, containerd the id."""
        return _repository_digest(spec, self._rules.docker) if self._rules.docker else spec.id

    def shown_ref(self, spec: Spec) -> str:
        """A container's `imageID`."""
        digest = _repository_digest(spec, self._rules.docker)
        return f"docker-pullable://{digest}" if self._rules.docker else digest

    def shown_name(self, spec: Spec, asked: str) -> str:
        """A container's `image`: the first tag, or else what was asked for."""
        stored = self._by_id.get(spec.id)
        return _view(stored, self._rules.docker).tags[0] if stored is not None and stored.tags else asked

    def _find(self, image: str) -> _Stored | None:
        stored = self._by_id.get(image)
        if stored is not None:
            return stored
        identity = self._by_name.get(str(parse(image)))
        if identity is None and len(image) == 64:
            return self._by_id.get(f"sha256:{image}")
        return self._by_id[identity] if identity is not None else None

    # Pulling

    async def pull(self, image: str, auth: Auth | None, *, hyperv: bool = False) -> Spec:
        reference = parse(image)
        problem = self.outside()
        if problem is not None:
            await self._clock.sleep(self._speed.longest)
            raise self._texts.no_way(reference, problem)
        resolved = self._resolve(reference)
        self._authorize(reference, resolved.entry, auth)
        spec = resolved.spec(self._choose(resolved, hyperv))
        if spec.id not in self._by_id:
            await self._download(reference, spec)
        self._tag(reference, spec)
        return spec

    def preload(self, image: str) -> None:
        """It is there from the start. Raises RuntimeFailure as a pull does."""
        reference = parse(image)
        resolved = self._resolve(reference)
        spec = resolved.spec(self._choose(resolved, hyperv=False))
        self._store(reference, spec)
        self._tag(reference, spec)

    def _resolve(self, reference: Reference) -> Resolved:
        try:
            return self._catalogue.find(reference)
        except Missing as missing:
            texts = self._texts
            failures: Mapping[str, Callable[[Reference], RuntimeFailure]] = {
                "host": texts.no_host, "repository": texts.no_repository, "tag": texts.no_tag,
            }  # fmt: skip
            raise failures[missing.what](reference) from None

    def _authorize(self, reference: Reference, entry: Entry, auth: Auth | None) -> None:
        private = entry.private
        if not private:
            return
        if auth is None or not auth.username:
            raise self._texts.no_repository(reference)
        if isinstance(private, Mapping) and private.get(auth.username) != auth.password:
            raise self._texts.wrong_password(reference)

    def _choose(self, resolved: Resolved, hyperv: bool) -> Platform:
        rules = self._rules
        if not resolved.is_list:
            return self._check_single(resolved.reference, resolved.platforms[0])
        mine = (rules.os, rules.architecture)
        fitting = [p for p in resolved.platforms if (p.os, p.architecture) == mine and self._fits(p, hyperv)]
        if not fitting:
            raise self._texts.no_platform(resolved.reference, self._platform_text())
        return max(fitting, key=lambda p: (p.build == rules.build, p.build))

    def _check_single(self, reference: Reference, platform: Platform) -> Platform:
        """A single manifest is not chosen, and what is wrong with it shows late: containerd looks at nothing, though a
        Windows node cannot unpack a Linux layer."""
        rules = self._rules
        if platform.os != rules.os and (rules.docker or rules.os == "windows"):
            raise self._texts.other_system(reference, platform.os)
        if platform.build > rules.build > 0:
            failure = self._texts.too_new(reference, platform.version, f"10.0.{rules.build}")
            if failure is not None:
                raise failure
        return platform

    def _fits(self, platform: Platform, hyperv: bool) -> bool:
        """Docker takes whatever is not newer than the host and finds out later; containerd wants the same build."""
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

    async def _download(self, reference: Reference, spec: Spec) -> None:
        """Whoever comes second waits for the first."""
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

    def _store(self, reference: Reference, spec: Spec) -> None:
        if spec.id in self._by_id:
            return
        if not self._space.take(spec.size):
            raise self._texts.no_space(reference)
        self.used += spec.size
        self._by_id[spec.id] = _Stored(spec)

    def _tag(self, reference: Reference, spec: Spec) -> None:
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

    # Removing

    def remove(self, image: str) -> None:
        """With all its names. Nothing happens when it is not there."""
        stored = self._find(image)
        if stored is None:
            return
        del self._by_id[stored.spec.id]
        for name in (*stored.tags, *stored.digests):
            self._by_name.pop(name, None)
        self._space.take(-stored.spec.size)
        self.used -= stored.spec.size


def _repository_digest(spec: Spec, docker: bool) -> str:
    return f"{familiar(spec.repository) if docker else spec.repository}@{spec.digest}"


def _view(stored: _Stored, docker: bool) -> Image:
    spec = stored.spec
    key = (spec.id, stored.tags + stored.digests, docker)
    view = _VIEWS.get(key)
    if view is None:
        shown: Callable[[str], str] = familiar if docker else str
        user = spec.user.partition(":")[0]
        uid = int(user) if user.isdigit() else None
        view = _VIEWS[key] = Image(
            spec.id,
            tuple(map(shown, stored.tags)),
            tuple(map(shown, stored.digests)),
            spec.size,
            uid,
            "" if uid is not None else user,
        )
    return view
