"""`transom image load`: where images come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.cli.main import main


def test_an_archive_in_the_place_of_an_image_gets_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "my images.tar"
    archive.touch()
    assert main(["image", "load", "--store", str(tmp_path / "store"), str(archive)]) == 2
    error = capsys.readouterr().err
    assert f"{archive} is a file, not an image of a container engine" in error
    assert f"transom image load --file '{archive}'" in error
