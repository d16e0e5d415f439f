"""The image catalogue: which images exist, for which platforms, and their contents. The list is
data (`catalogue.yaml`); users add files.

An unlisted image is assumed to exist, and its name determines what it is: a Windows image of a
build when the name or tag contains one, otherwise a Linux server. Names that imply that they do not
exist (`*.invalid`, `nonexistent`, `:404`) do not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, cast

from transom.kit.lazy import lazy_import, lazy_pattern
from transom.kit.named_tuple import NamedTuple
from transom.machinery import goyaml
from transom.runtime.sim.names import ImageReference, parse_image_name
from transom.userland.api import ImageInfo, Userland
from transom.windows.builds import build_of_tag

if TYPE_CHECKING:
    import yaml
else:
    yaml = lazy_import("yaml")

Os = Literal["linux", "windows"]
_WINDOWS_NAME = lazy_pattern(
    r"windows|nanoserver|servercore|ltsc20\d\d|(?:^|[-_:./])(?:win|iis)(?:$|[-_:./])"
)
_MISSING_NAME = lazy_pattern(
    r"non-?existent|does-?not-?exist|no-?such-?(?:image|tag|repo)|^(?:invalid|404)$"
)
_ALPINE_TAG = lazy_pattern(r"(?:^|[-.])alpine(?:$|[-.\d])")
_ALL_BUILDS = (17763, 18362, 18363, 19041, 19042, 20348, 26100)
_SIZE = lazy_pattern(r"(\d+(?:\.\d+)?)\s*([kMGT]?)(i?)B?", re.IGNORECASE)
_BASE_SIZE = {"nanoserver": 260 << 20, "servercore": 5 << 30, "windows": 10 << 30}
_DEFAULT_SIZE = 100 << 20


class ImageMissing(Exception):
    """The image does not exist. `what` is missing: its host, the repository, the tag."""

    def __init__(self, what: Literal["host", "repository", "tag"]) -> None:
        super().__init__(what)
        self.what = what


class CatalogueError(ValueError):
    """A catalogue file is malformed; the text includes the position."""


class CataloguePlatform(NamedTuple):
    os: Os
    architecture: str
    build: int = 0  # of Windows

    @property
    def version(self) -> str:
        return f"10.0.{self.build}" if self.build else ""


class CatalogueImage(NamedTuple):
    """An image for one platform, as stored on a node's disk. Shared by all nodes."""

    id: str  # sha256:...
    repository: str
    digest: str
    platform: CataloguePlatform
    size: int
    info: ImageInfo
    user: str
    env: tuple[tuple[str, str], ...]
    working_dir: str
    ports: tuple[int, ...]
    stop_signal: str
    shutdown_timeout: float  # Windows: WaitToKillServiceTimeout of its registry
    unlisted: bool = False


class ResolvedImage(NamedTuple):
    """A registry's response for a name."""

    reference: ImageReference
    digest: str
    platforms: tuple[CataloguePlatform, ...]
    is_list: bool
    entry: CatalogueEntry

    def spec(self, platform: CataloguePlatform) -> CatalogueImage:
        return _spec(self.entry, self.reference, self.digest, platform)


class CatalogueEntry:
    """A row of the catalogue. For images of both systems `only` holds what differs for one of
    them.
    """

    __slots__ = (
        "architectures",
        "fields",
        "only",
        "private",
        "single",
        "specs",
        "tags",
        "unlisted",
        "windows_builds",
    )

    def __init__(self, fields: Mapping[str, Any], unlisted: bool = False) -> None:
        self.unlisted = unlisted
        self.fields = {
            key: value for key, value in fields.items() if key not in ("linux-only", "windows-only")
        }
        self.only: dict[str, Mapping[str, Any]] = {
            os: fields.get(f"{os}-only", {}) for os in ("linux", "windows")
        }
        self.tags = tuple(str(tag) for tag in fields.get("tags", ("*",)))
        builds = fields.get("windows", ())
        self.windows_builds: tuple[int, ...] | None = (
            None if builds == "by-tag" else tuple(int(b) for b in builds)
        )
        default = () if "windows" in fields else ("amd64", "arm64", "arm", "ppc64le", "s390x")
        self.architectures = tuple(fields.get("linux", default))
        self.single = fields.get("manifest") == "single"
        self.private: bool | Mapping[str, str] = fields.get("private", False)
        self.specs: dict[tuple[str, str, CataloguePlatform], CatalogueImage] = {}

    def get(self, os: Os, key: str, default: Any = None) -> Any:
        only = self.only[os]
        return only[key] if key in only else self.fields.get(key, default)

    def platforms(self, reference: ImageReference) -> tuple[CataloguePlatform, ...]:
        builds = self.windows_builds
        build = build_of_tag(reference.tag) if builds != () else None
        if build is not None:
            return (CataloguePlatform("windows", "amd64", build.number),)
        if builds is None:
            if not reference.digest:
                raise ImageMissing("tag")
            builds = _ALL_BUILDS
        return (
            *(CataloguePlatform("linux", architecture) for architecture in self.architectures),
            *(CataloguePlatform("windows", "amd64", build) for build in builds),
        )


_FORMER_REGISTRY, _REGISTRY = "k8s.gcr.io/", "registry.k8s.io/"


class Catalogue:
    def __init__(self, entries: Iterable[Mapping[str, Any]] = ()) -> None:
        self._entries: dict[str, tuple[CatalogueEntry, ...]] = {}
        self._resolved: dict[ImageReference, ResolvedImage] = {}
        self.add(entries)

    def add(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """These rows take precedence over existing ones."""
        new: dict[str, tuple[CatalogueEntry, ...]] = {}
        for fields in entries:
            entry = CatalogueEntry(fields)
            for repository in _repositories(fields):
                new[repository] = (*new.get(repository, ()), entry)
        for repository, rows in new.items():
            self._entries[repository] = rows + self._entries.get(repository, ())
        self._resolved.clear()

    def find(self, reference: ImageReference) -> ResolvedImage:
        """Raises Missing."""
        found = self._resolved.get(reference)
        if found is None:
            found = self._resolved[reference] = self._find(reference)
        return found

    def _find(self, reference: ImageReference) -> ResolvedImage:
        if reference.registry.partition(":")[0].endswith(".invalid"):
            raise ImageMissing("host")
        entry = self._entry(reference)
        platforms = entry.platforms(reference)
        digest = reference.digest or _sha256(f"{reference.repository}:{reference.tag}")
        return ResolvedImage(reference, digest, platforms, not entry.single, entry)

    def _entry(self, reference: ImageReference) -> CatalogueEntry:
        if _MISSING_NAME.search(reference.tag):
            raise ImageMissing("tag")
        rows = self._entries.get(reference.repository)
        if rows is not None:
            for entry in rows:
                if reference.digest or any(
                    fnmatchcase(reference.tag, pattern) for pattern in entry.tags
                ):
                    return entry
            raise ImageMissing("tag")
        if any(_MISSING_NAME.search(part) for part in reference.path.split("/")):
            raise ImageMissing("repository")
        return _guess(reference)


def _repositories(fields: Mapping[str, Any]) -> Iterable[str]:
    """Those that a row names. What was at k8s.gcr.io is at registry.k8s.io since Kubernetes 1.25."""
    names = (fields["name"],) if "name" in fields else fields["names"]
    repositories = [parse_image_name(name).repository for name in names]
    moved = [
        _REGISTRY + one.removeprefix(_FORMER_REGISTRY)
        for one in repositories
        if one.startswith(_FORMER_REGISTRY)
    ]
    return dict.fromkeys((*repositories, *moved))


def _guess(reference: ImageReference) -> CatalogueEntry:
    """Derives an unlisted image from its name. Images that users build are rarely manifest
    lists.
    """
    program = reference.path.rpartition("/")[2]
    if not _WINDOWS_NAME.search(f"{reference.path}:{reference.tag}".lower()):
        return CatalogueEntry(
            {"linux": ["amd64"], "manifest": "single", "entrypoint": [f"/{program}"]},
            unlisted=True,
        )
    build = build_of_tag(reference.tag) or build_of_tag(program)
    fields: dict[str, Any] = {
        "windows": [build.number] if build else _ALL_BUILDS,
        "entrypoint": [rf"C:\{program}.exe"],
    }
    if build:
        fields["manifest"] = "single"
    return CatalogueEntry(fields, unlisted=True)


def _spec(
    entry: CatalogueEntry, reference: ImageReference, digest: str, platform: CataloguePlatform
) -> CatalogueImage:
    key = (reference.repository, digest, platform)
    spec = entry.specs.get(key)
    if spec is None:
        spec = entry.specs[key] = _make_spec(entry, reference, digest, platform)
    return spec


def _make_spec(
    entry: CatalogueEntry, reference: ImageReference, digest: str, platform: CataloguePlatform
) -> CatalogueImage:
    os = platform.os
    userland = cast(Userland, entry.get(os, "userland", "any"))
    if os == "linux" and userland == "gnu" and _ALPINE_TAG.search(reference.tag):
        userland = "busybox"  # the tag of an Alpine-based image usually contains "alpine"
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
    return CatalogueImage(
        id=_sha256(f"{digest} {os}/{platform.architecture} {platform.version}"),
        repository=reference.repository,
        digest=digest,
        platform=platform,
        size=parse_image_size(size)
        if size is not None
        else _BASE_SIZE.get(userland, _DEFAULT_SIZE),
        info=info,
        user=str(entry.get(os, "user", _default_user(os, userland))),
        env=tuple((str(k), str(v)) for k, v in entry.get(os, "env", {}).items()),
        working_dir=entry.get(os, "working-dir", ""),
        ports=tuple(int(p) for p in entry.get(os, "ports", ())),
        stop_signal=entry.get(os, "stop-signal", "SIGTERM"),
        shutdown_timeout=float(entry.get(os, "shutdown-timeout", 5.0)),
        unlisted=entry.unlisted,
    )


def _default_user(os: Os, userland: Userland) -> str:
    """Nano Server images specify a user; the others leave it to the runtime."""
    return "ContainerUser" if os == "windows" and userland == "nanoserver" else ""


def parse_image_size(text: str | int) -> int:
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
        "name",
        "names",
        "linux",
        "windows",
        "tags",
        "manifest",
        "size",
        "entrypoint",
        "cmd",
        "env",
        "user",
        "working-dir",
        "ports",
        "program",
        "options",
        "userland",
        "private",
        "stop-signal",
        "shutdown-timeout",
        "linux-only",
        "windows-only",
    )
)


def parse_catalogue(text: str, where: str = "catalogue") -> list[Mapping[str, Any]]:
    """The rows of a catalogue file. Raises CatalogueError."""
    try:
        data = goyaml.load_yaml(text.encode())
    except goyaml.YamlError as error:
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
        parse_image_size(row.get("size", 0))
    return rows


@cache
def default_catalogue() -> Catalogue:
    """The built-in catalogue; shared, so do not modify it."""
    return Catalogue(_builtin_rows())


@cache
def _builtin_rows() -> list[Mapping[str, Any]]:
    return parse_catalogue(
        resources.files(__package__).joinpath("catalogue.yaml").read_text("utf-8")
    )


def catalogue_with(text: str, where: str) -> Catalogue:
    """The built-in catalogue, preceded by a user's."""
    catalogue = Catalogue(_builtin_rows())
    catalogue.add(parse_catalogue(text, where))
    return catalogue
