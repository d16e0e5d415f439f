"""`python -m tools.architecture_diagram`: writes docs/architecture.svg.

The picture shows the packages of `transom` in their layers, the imports between them and the path of
a pod. The layers are those of the import contract in pyproject.toml, the imports come from the import
graph of the source, and the path comes from two walks of docs/architecture.md: `create` and `pod to
node and back`. The same sources make the same bytes; tests/tools checks that the picture is current.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "architecture.md"
PICTURE: Final = ROOT / "docs" / "architecture.svg"
WALKS: Final = ("create", "pod to node and back")

WIDTH: Final = 1320
MARGIN: Final = 24
BOX_HEIGHT: Final = 38
ROW_HEIGHT: Final = 76
BOX_WIDTH: Final = 92
BADGE: Final = 8

STYLE: Final = """
text { font-family: system-ui, sans-serif; text-anchor: middle; fill: #1f2430 }
.name { font-size: 14px; font-weight: 600 }
.step { font-size: 10px; font-weight: 600; fill: #ffffff }
.legend { font-size: 12px; text-anchor: start; fill: #667085 }
.box { fill: #f4f6fb; stroke: #98a2b3 }
.visited { fill: #fff4ec; stroke: #d9480f }
.import { stroke: #98a2b3; stroke-opacity: 0.35; fill: none }
.path { stroke: #d9480f; stroke-opacity: 0.45; stroke-width: 1.5; fill: none }
.badge { fill: #d9480f }
"""


@dataclass(frozen=True)
class Package:
    name: str
    imports: frozenset[str]


@dataclass
class Box:
    package: Package
    x: float
    y: float
    steps: list[int] = field(default_factory=list)

    @property
    def centre(self) -> float:
        return self.x + BOX_WIDTH / 2

    def badge(self, step: int) -> tuple[float, float]:
        offset = self.steps.index(step) - (len(self.steps) - 1) / 2
        return round(self.centre + offset * 2 * (BADGE + 1), 1), self.y + BOX_HEIGHT


def read_packages() -> dict[str, Package]:
    graph = grimp.build_graph("transom", cache_dir=None)
    names = sorted(name.split(".")[1] for name in graph.find_children("transom"))
    packages = {}
    for name in names:
        modules = {f"transom.{name}", *graph.find_descendants(f"transom.{name}")}
        if len(modules) == 1:
            continue
        imported = {
            target.split(".")[1]
            for module in modules
            for target in graph.find_modules_directly_imported_by(module)
            if target.count(".")
        }
        packages[name] = Package(name, frozenset(imported - {name}))
    return packages


def read_layers(packages: dict[str, Package]) -> list[list[str]]:
    """From the top down, as the contract lists them: it names every package."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    contract = next(c for c in contracts if c["name"] == "imports point down only")
    layers = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    layers = [[name for name in layer if name in packages] for layer in layers]
    if missing := packages.keys() - {name for layer in layers for name in layer}:
        raise SystemExit(f"the import contract has no layer for {', '.join(sorted(missing))}")
    return [layer for layer in layers if layer]


def pod_path(page: str) -> list[str]:
    """The packages of the two walks in their order, without repeats of the one just left."""
    path: list[str] = []
    for walk in WALKS:
        body = re.search(rf"^### {walk}: .*?\n(.*?)(?=^##|\Z)", page, re.S | re.M)
        if body is None:
            raise SystemExit(f"{PAGE.name} has no walk named {walk!r}")
        for package in re.findall(r"^\d+\. `(\w+)/", body[1], re.M):
            if path[-1:] != [package]:
                path.append(package)
    return path


def direct_imports(packages: dict[str, Package]) -> list[tuple[str, str]]:
    """Imports that do not follow from others: a -> c is left out where a -> b and b -> c exist."""
    reached: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in reached:
            reached[name] = set()
            for other in packages[name].imports & packages.keys():
                reached[name] |= {other} | reach(other)
        return reached[name]

    return [
        (name, other)
        for name in sorted(packages)
        for other in sorted(packages[name].imports & packages.keys())
        if not any(
            other in reach(third) for third in packages[name].imports & packages.keys() - {other}
        )
    ]


def place_boxes(layers: Sequence[Sequence[str]], packages: dict[str, Package]) -> dict[str, Box]:
    boxes = {}
    for row, layer in enumerate(layers):
        gap = (WIDTH - 2 * MARGIN - len(layer) * BOX_WIDTH) / (len(layer) + 1)
        for column, name in enumerate(layer):
            x = MARGIN + gap * (column + 1) + BOX_WIDTH * column
            boxes[name] = Box(packages[name], round(x, 1), MARGIN + 30 + row * ROW_HEIGHT)
    return boxes


def draw_box(box: Box) -> Iterable[str]:
    kind = "visited" if box.steps else "box"
    yield (
        f'<rect class="{kind}" x="{box.x}" y="{box.y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
    )
    yield f'<text class="name" x="{box.centre}" y="{box.y + 23}">{escape(box.package.name)}</text>'
    for step in box.steps:
        x, y = box.badge(step)
        yield f'<circle class="badge" cx="{x}" cy="{y}" r="{BADGE}"/>'
        yield f'<text class="step" x="{x}" y="{y + 3.5}">{step}</text>'


def draw_import(start: Box, end: Box) -> str:
    top, bottom = start.y + BOX_HEIGHT, end.y
    bend = (bottom - top) / 2
    return (
        f'<path class="import" d="M {start.centre} {top} C {start.centre} {top + bend:.1f} '
        f'{end.centre} {bottom - bend:.1f} {end.centre} {bottom}"/>'
    )


def draw_step(start: tuple[float, float], end: tuple[float, float]) -> str:
    return f'<path class="path" d="M {start[0]} {start[1]} L {end[0]} {end[1]}"/>'


def draw(packages: dict[str, Package], layers: list[list[str]], path: list[str]) -> str:
    boxes = place_boxes(layers, packages)
    for step, name in enumerate(path, 1):
        boxes[name].steps.append(step)
    height = MARGIN * 2 + 30 + len(layers) * ROW_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">',
        "<title>The packages of Transom in their layers, and the path of a pod</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text class="legend" x="{MARGIN}" y="{MARGIN + 4}">Lines: imports, which point down only. '
        "Numbers: the path of a pod from kubectl to its node, and of its status back.</text>",
        *(draw_import(boxes[a], boxes[b]) for a, b in direct_imports(packages)),
        *(
            draw_step(boxes[a].badge(step), boxes[b].badge(step + 1))
            for step, (a, b) in enumerate(pairwise(path), 1)
        ),
        *(part for box in boxes.values() for part in draw_box(box)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def check_path(path: list[str], packages: dict[str, Package]) -> None:
    unknown = [name for name in path if name not in packages]
    if unknown or any(a == b for a, b in pairwise(path)):
        raise SystemExit(f"the walks name packages that do not exist: {', '.join(unknown)}")


def picture() -> str:
    packages = read_packages()
    path = pod_path(PAGE.read_text())
    check_path(path, packages)
    return draw(packages, read_layers(packages), path)


if __name__ == "__main__":
    PICTURE.write_text(picture())
