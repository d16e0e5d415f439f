"""Which images exist, for which platforms, and what is in them. The list is data (`catalogue.yaml`); users add files.

An image that nobody listed is taken to exist, and its name tells what it is: a Windows image of a build when the name or
tag says so, else a Linux server. Names that say that they do not exist (`*.invalid`, `nonexistent`, `:404`) do not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple, cast

from transom.runtime.sim.names import Reference, parse
from transom.runtime.sim.program_api import ImageInfo, Userland
from transom.windows.builds import of_tag

Os = Literal["linux", "windows"]
_WINDOWS_NAME = re.compile(r"windows|nanoserver|servercore|ltsc20\d\d|(?:^|[-_:./])(?:win|iis)(?:$|[-_:./])")
_MISSING_NAME = re.compile(r"non-?existent|does-?not-?exist|no-?such-?(?:image|tag|repo)|^(?:invalid|404)$")
_ALPINE_TAG = re.compile(r"(?:^|[-.])alpine(?:$|[-.\d])")
_ALL_BUILDS = (17763, 18362, 18363, 19041, 19042, 20348)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)(i?)B?", re.IGNORECASE)
_BASE_SIZE = {"nanoserver": 260 << 20, "servercore": 5 << 30, "windows": 10 << 30}
_DEFAULT_SIZE = 100 << 20


class Missing(Exception):
    """There is no such image. `what` is missing: its host, the repository, the tag."""

    def __init__(self, what: Literal["host", "repository", "tag"]) -> None:
        super().__init__(what)
        self.what = what


class CatalogueError(ValueError):
    """A catalogue file is not well formed; the text says where."""


class Platform(NamedTuple):
    os: Os
    architecture: str
    build: int = 0  # of Windows

    @property
    def version(self) -> str:
        return f"10.0.{self.build}" if self.build else ""


class Spec(NamedTuple):
    """An image for one platform, as it lies on a node's disk. Shared by all nodes."""

    id: str  # sha256:...
    repository: str
    digest: str
    platform: Platform
    size: int
    info: ImageInfo
    user: str
    env: tuple[tuple[str, str], ...]
    working_dir: str
    ports: tuple[int, ...]
    stop_signal: str
    shutdown_timeout: float  # Windows: WaitToKillServiceTimeout of its registry


class Resolved(NamedTuple):
    """What a registry answers for a name."""

    reference: Reference
    digest: str
    platforms: tuple[Platform, ...]
    is_list: bool
    entry: Entry

    def spec(self, platform: Platform) -> Spec:
        return _spec(self.entry, self.reference, self.digest, platform)


class Entry:
    """A row of the catalogue. For images of both systems `only` holds what one of them has otherwise."""

    __slots__ = ("architectures", "fields", "only", "private", "single", "specs", "tags", "windows_builds")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = {key: value for key, value in fields.items() if key not in ("linux-only", "windows-only")}
        self.only: dict[str, Mapping[str, Any]] = {os: fields.get(f"{os}-only", {}) for os in ("linux", "windows")}
        self.tags = tuple(str(tag) for tag in fields.get("tags", ("*",)))
        builds = fields.get("windows", ())
        self.windows_builds: tuple[int, ...] | None = None if builds == "by-tag" else tuple(int(b) for b in builds)
        default = () if "windows" in fields else ("amd64", "arm64", "arm", "ppc64le", "s390x")
        self.architectures = tuple(fields.get("linux", default))
        self.single = fields.get("manifest") == "single"
        self.private: bool | Mapping[str, str] = fields.get("private", False)
        self.specs: dict[tuple[str, str, Platform], Spec] = {}

    def get(self, os: Os, key: str, default: Any = None) -> Any:
        only = self.only[os]
        return only[key] if key in only else self.fields.get(key, default)

    def platforms(self, reference: Reference) -> tuple[Platform, ...]:
        builds = self.windows_builds
        build = of_tag(reference.tag) if builds != () else None
        if build is not None:
            return (Platform("windows", "amd64", build.number),)
        if builds is None:
            if not reference.digest:
                raise Missing("tag")
            builds = _ALL_BUILDS
        return (
            *(Platform("linux", architecture) for architecture in self.architectures),
            *(Platform("windows", "amd64", build) for build in builds),
        )


class Catalogue:
    def __init__(self, entries: Iterable[Mapping[str, Any]] = ()) -> None:
        self._entries: dict[str, tuple[Entry, ...]] = {}
        self._resolved: dict[Reference, Resolved] = {}
        self.add(entries)

    def add(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """These rows come before those that were there."""
        new: dict[str, tuple[Entry, ...]] = {}
        for fields in entries:
            entry = Entry(fields)
            for name in (fields["name"],) if "name" in fields else fields["names"]:
                repository = parse(name).repository
                new[repository] = (*new.get(repository, ()), entry)
        for repository, rows in new.items():
            self._entries[repository] = rows + self._entries.get(repository, ())
        self._resolved.clear()

    def find(self, reference: Reference) -> Resolved:
        """Raises Missing."""
        found = self._resolved.get(reference)
        if found is None:
            found = self._resolved[reference] = self._find(reference)
        return found

    def _find(self, reference: Reference) -> Resolved:
        if reference.registry.partition(":")[0].endswith(".invalid"):
            raise Missing("host")
        entry = self._entry(reference)
        platforms = entry.platforms(reference)
        digest = reference.digest or _sha256(f"{reference.repository}:{reference.tag}")
        return Resolved(reference, digest, platforms, not entry.single, entry)

    def _entry(self, reference: Reference) -> Entry:
        if _MISSING_NAME.search(reference.tag):
            raise Missing("tag")
        rows = self._entries.get(reference.repository)
        if rows is not None:
            for entry in rows:
                if reference.digest or any(fnmatchcase(reference.tag, pattern) for pattern in entry.tags):
                    return entry
            raise Missing("tag")
        if any(_MISSING_NAME.search(part) for part in reference.path.split("/")):
            raise Missing("repository")
        return _guess(reference)


def _guess(reference: Reference) -> Entry:
    """What the name of an unlisted image says of it. What people build themselves is seldom a manifest list."""
    program = reference.path.rpartition("/")[2]
    if not _WINDOWS_NAME.search(f"{reference.path}:{reference.tag}".lower()):
        return Entry({"linux": ["amd64"], "manifest": "single", "entrypoint": [f"/{program}"]})
    build = of_tag(reference.tag) or of_tag(program)
    fields: dict[str, Any] = {"windows": [build.number] if build else _ALL_BUILDS, "entrypoint": [rf"C:\{program}.exe"]}
    if build:
        fields["manifest"] = "single"
    return Entry(fields)


def _spec(entry: Entry, reference: Reference, digest: str, platform: Platform) -> Spec:
    key = (reference.repository, digest, platform)
    spec = entry.specs.get(key)
    if spec is None:
        spec = entry.specs[key] = _make_spec(entry, reference, digest, platform)
    return spec


def _make_spec(entry: Entry, reference: Reference, digest: str, platform: Platform) -> Spec:
    os = platform.os
    userland = cast(Userland, entry.get(os, "userland", "any"))
    if os == "linux" and userland == "gnu" and _ALPINE_TAG.search(reference.tag):
        userland = "busybox"  # the variant of an image that is built on Alpine says so in its tag
    info = ImageInfo(
        name=str(reference),
        os=os,
        program=entry.get(os, "program", ""),
        options={str(k): str(v) for k, v in entry.get(os, "options", {}).items()},
        userland=userland,
        entrypoint=tuple(entry.get(os, "entrypoint", ())),
        cmd=tuple(entry.get(os, "cmd", ())),
    )
    size = entry.get(os, "size")
    return Spec(
        id=_sha256(f"{digest} {os}/{platform.architecture} {platform.version}"),
        repository=reference.repository,
        digest=digest,
        platform=platform,
        size=parse_size(size) if size is not None else _BASE_SIZE.get(userland, _DEFAULT_SIZE),
        info=info,
        user=str(entry.get(os, "user", _default_user(os, userland))),
        env=tuple((str(k), str(v)) for k, v in entry.get(os, "env", {}).items()),
        working_dir=entry.get(os, "working-dir", ""),
        ports=tuple(int(p) for p in entry.get(os, "ports", ())),
        stop_signal=entry.get(os, "stop-signal", "SIGTERM"),
        shutdown_timeout=float(entry.get(os, "shutdown-timeout", 5.0)),
    )


def _default_user(os: Os, userland: Userland) -> str:
    """Nano Server's images name a user themselves; the others leave it to the runtime."""
    return "ContainerUser" if os == "windows" and userland == "nanoserver" else ""


def parse_size(text: str | int) -> int:
    if isinstance(text, int):
        return text
    match = _SIZE.fullmatch(text)
    if match is None:
        raise CatalogueError(f"not a size: {text!r}")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** " kmgt".index(match[2].lower() or " "))


def _sha256(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


_FIELDS = frozenset(
    (
        "name", "names", "linux", "windows", "tags", "manifest", "size", "entrypoint", "cmd", "env", "user", "working-dir",
        "ports", "program", "options", "userland", "private", "stop-signal", "shutdown-timeout", "linux-only", "windows-only",
    )
)  # fmt: skip


def parse_catalogue(text: str, where: str = "catalogue") -> list[Mapping[str, Any]]:
    """The rows of a catalogue file. Raises CatalogueError."""
    import yaml

    try:
        data = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise CatalogueError(f"{where}: {error}") from error
    rows = data.get("images") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise CatalogueError(f"{where}: a mapping with the key images is wanted")
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or not ("name" in row or "names" in row):
            raise CatalogueError(f"{where}: images[{number}]: a name is wanted")
        unknown = sorted(set(row) - _FIELDS)
        if unknown:
            raise CatalogueError(f"{where}: images[{number}]: unknown field {unknown[0]!r}")
        parse_size(row.get("size", 0))
    return rows


@cache
def default_catalogue() -> Catalogue:
    """The one of the house; shared, so add nothing to it."""
    return Catalogue(_house_rows())


@cache
def _house_rows() -> list[Mapping[str, Any]]:
    return parse_catalogue(resources.files(__package__).joinpath("catalogue.yaml").read_text("utf-8"))


def catalogue_with(text: str, where: str) -> Catalogue:
    """The house's catalogue and, before it, a user's."""
    catalogue = Catalogue(_house_rows())
    catalogue.add(parse_catalogue(text, where))
    return catalogue
