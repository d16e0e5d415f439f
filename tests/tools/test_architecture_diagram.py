"""docs/architecture.svg matches the sources."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from tools.architecture_diagram import Package

from tools import architecture_diagram as diagram


def test_the_picture_is_current() -> None:
    message = "out of date: run `make docs`"
    assert diagram.PICTURE.read_text() == diagram.picture(), message


def test_all_packages_and_steps_are_shown() -> None:
    svg = diagram.PICTURE.read_text()
    assert set(re.findall(r'class="name"[^>]*>(\w+)<', svg)) == diagram.read_packages().keys()
    steps = [int(step) for step in re.findall(r'class="step"[^>]*>(\d+)<', svg)]
    path = diagram.pod_path(diagram.PAGE.read_text())
    assert sorted(steps) == list(range(1, len(path) + 1))


def test_path_follows_the_walks() -> None:
    page = (
        "### create: 3 files (x)\n1. `http/a.py` `f`\n2. `http/b.py` `f`\n3. `store/c.py` `f`\n"
        "### pod to node and back: 1 files (x)\n1. `store/d.py` `f`\n2. `kubelet/d.py` `f`\n"
        "### exec: 1 files (x)\n1. `proxy/d.py` `f`\n"
    )
    assert diagram.pod_path(page) == ["http", "store", "kubelet"]


def test_a_page_without_the_walks_is_an_error() -> None:
    with pytest.raises(SystemExit, match="no walk named 'create'"):
        diagram.pod_path("# Architecture\n")


def test_imports_that_follow_from_others_are_left_out() -> None:
    packages = {
        "a": Package("a", frozenset({"b", "c"})),
        "b": Package("b", frozenset({"c"})),
        "c": Package("c", frozenset()),
    }
    assert diagram.direct_imports(packages) == [("a", "b"), ("b", "c")]


def test_packages_are_in_the_layers_of_the_contract_and_apart_from_each_other() -> None:
    packages = diagram.read_packages()
    layers = diagram.read_layers(packages)
    boxes = diagram.place_boxes(layers, packages)
    assert len(layers) > 10
    assert layers[0] == ["cli"]
    for row in layers:
        places = [boxes[name].x for name in row]
        assert all(b - a > diagram.BOX_WIDTH for a, b in pairwise(places))
        assert all(diagram.MARGIN <= x <= diagram.WIDTH - diagram.BOX_WIDTH for x in places)
    upward = [
        (name, other)
        for name, other in diagram.direct_imports(packages)
        if boxes[other].y <= boxes[name].y
    ]
    assert upward == []


def test_a_package_without_a_layer_is_an_error() -> None:
    packages = {**diagram.read_packages(), "new": Package("new", frozenset())}
    with pytest.raises(SystemExit, match="no layer for new"):
        diagram.read_layers(packages)
