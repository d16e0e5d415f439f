"""The sources of manifests: files, folders, standard input. Finds and reads files; knows nothing of
Kubernetes beyond what a manifest file must contain.

Folders contain many other files: chart values, workflows, lock files. A file found in a folder is
read if it can contain an object; a file that the user names is always read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.lint.text import SourceText

_ENDINGS: Final = (".yaml", ".yml", ".json")
_SKIPPED: Final = frozenset(("node_modules", "__pycache__", "vendor", "venv"))
_LARGEST: Final = 64 << 20
STDIN: Final = "-"


@dataclass(slots=True)
class ManifestSource:
    """A text with manifests. `scope` identifies its set: for files, the folder."""

    name: str
    text: SourceText
    scope: str
    path: Path | None = None
    named: bool = True  # named by the user, not found in a folder
    bom: bool = False


@dataclass(slots=True)
class SourcesRead:
    sources: list[ManifestSource] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # skipped files, and why
    problems: list[str] = field(default_factory=list)  # requested files that cannot be read


def read_sources(paths: Sequence[str], exclude: Sequence[str] = ()) -> SourcesRead:
    reading = SourcesRead()
    seen: set[Path] = set()
    charts: dict[str, int] = {}  # skipped template files by chart
    for name in paths:
        if name == STDIN:
            _stdin(reading)
            continue
        path = Path(name)
        if path.is_dir():
            _folder(path, exclude, reading, seen, charts)
        elif path.exists():
            _file(path, reading, seen, named=True, chart=_chart_of(path), charts=charts)
        else:
            reading.problems.append(f"{name}: there is no such file or folder")
    for folder, count in charts.items():
        files = "file" if count == 1 else "files"
        reading.notes.append(
            f"{folder}: {count} template {files} of a chart left out; try: helm template "
            f"{folder} | transom lint -"
        )
    return reading


def _stdin(reading: SourcesRead) -> None:
    data = sys.stdin.buffer.read(_LARGEST + 1)
    text = _decode(data) if len(data) <= _LARGEST else None
    if text is None:
        why = "not text in UTF-8" if len(data) <= _LARGEST else "too large"
        reading.problems.append(f"standard input is {why}")
        return
    reading.sources.append(ManifestSource("<stdin>", SourceText(text), "<stdin>"))


def _folder(
    root: Path,
    exclude: Sequence[str],
    reading: SourcesRead,
    seen: set[Path],
    charts: dict[str, int],
) -> None:
    for path, chart in _walk(root, _chart_of(root / "x")):
        name = str(path)
        if not any(
            fnmatchcase(name, pattern) or fnmatchcase(path.name, pattern) for pattern in exclude
        ):
            _file(path, reading, seen, named=False, chart=chart, charts=charts)


def _chart_of(path: Path) -> Path | None:
    """The chart that a template file belongs to."""
    for folder in path.absolute().parents:
        if folder.name == "templates" and (folder.parent / "Chart.yaml").is_file():
            return folder.parent
    return None


def _walk(folder: Path, chart: Path | None) -> Iterator[tuple[Path, Path | None]]:
    """The files below a folder, in order, each with the chart if it is a template."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    is_chart = any(entry.name == "Chart.yaml" for entry in entries)
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _SKIPPED:
                within = folder if is_chart and entry.name == "templates" else chart
                if is_chart and entry.name == "charts":
                    within = None  # subcharts are separate charts
                yield from _walk(Path(entry.path), within)
        elif entry.name.endswith(_ENDINGS) and entry.is_file():
            yield Path(entry.path), chart


def _file(
    path: Path,
    reading: SourcesRead,
    seen: set[Path],
    *,
    named: bool,
    chart: Path | None,
    charts: dict[str, int],
) -> None:
    real = path.resolve()
    if real in seen:
        return
    seen.add(real)
    try:
        with path.open("rb") as file:  # perhaps a pipe; a device may never end
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise OSError("it is too large")
    except OSError as error:
        reading.problems.append(f"{path}: {error.strerror or error}")
        return
    if not named and not (b"apiVersion" in data and b"kind" in data):
        return
    text = _decode(data)
    if text is None:
        if named:
            reading.problems.append(f"{path}: not text in UTF-8")
        else:
            reading.notes.append(f"{path}: left out, it is not text in UTF-8")
        return
    if chart is not None and "{{" in text:
        charts[str(chart)] = charts.get(str(chart), 0) + 1
        return
    bom = data.startswith(b"\xef\xbb\xbf")
    reading.sources.append(
        ManifestSource(str(path), SourceText(text), str(path.parent), path, named, bom)
    )


def _decode(data: bytes) -> str | None:
    for start, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"", "utf-8-sig")):
        if data.startswith(start):
            try:
                return data.decode(encoding)
            except UnicodeDecodeError:
                return None
    return None


def write_source(source: ManifestSource, text: str) -> None:
    """Replaces a file atomically."""
    assert source.path is not None
    path = source.path.resolve()
    data = (b"\xef\xbb\xbf" if source.bom else b"") + text.encode()
    fresh = path.with_name(f".{path.name}.transom")
    fresh.write_bytes(data)
    fresh.chmod(path.stat().st_mode & 0o7777)
    fresh.replace(path)
