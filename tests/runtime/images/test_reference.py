"""Names of images."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.runtime.images.reference import (
    ImageNameError,
    image_id,
    parse_reference,
    split_reference,
)

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "whole", "registry", "path"),
    [
        ("nginx", "docker.io/library/nginx:latest", "docker.io", "library/nginx"),
        ("team/app:1", "docker.io/team/app:1", "docker.io", "team/app"),
        ("index.docker.io/nginx", "docker.io/library/nginx:latest", "docker.io", "library/nginx"),
        ("localhost/x", "localhost/x:latest", "localhost", "x"),
        ("localhost:5000/a/b:c", "localhost:5000/a/b:c", "localhost:5000", "a/b"),
        (
            "mcr.microsoft.com/windows/nanoserver:1809",
            "mcr.microsoft.com/windows/nanoserver:1809",
            "mcr.microsoft.com",
            "windows/nanoserver",
        ),
        (
            f"nginx:1@sha256:{HEX}",
            f"docker.io/library/nginx@sha256:{HEX}",
            "docker.io",
            "library/nginx",
        ),
    ],
)
def test_parse(text: str, whole: str, registry: str, path: str) -> None:
    found = parse_reference(text)
    assert (str(found), found.registry, found.path) == (whole, registry, path)
    assert parse_reference(str(found)) == found


def test_parts_stay_apart() -> None:
    assert split_reference(f"a/b:1@sha256:{HEX}")[1:] == ("1", f"sha256:{HEX}")
    assert split_reference("a") == ("docker.io/library/a", "", "")
    assert image_id(HEX) == image_id(f"sha256:{HEX}") == f"sha256:{HEX}"
    assert image_id("nginx") == ""


@given(st.text(max_size=80))
def test_any_text_is_a_name_or_an_image_name_error(text: str) -> None:
    with suppress(ImageNameError):
        assert parse_reference(str(parse_reference(text))) == parse_reference(text)
