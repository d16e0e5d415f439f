"""Hooks of mkdocs, which mkdocs.yml names: they give it the pages of `tools.site_pages`."""

from __future__ import annotations

from typing import Any

from mkdocs.structure.files import File
from tools.site_pages import OUTSIDE, ROOT, site_page


def on_files(files: Any, config: Any) -> Any:
    for source, place in OUTSIDE.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return site_page(markdown, page.file.src_uri)
