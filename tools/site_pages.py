"""The pages of the documentation site (`make site`), from the files of the repository.

The site has the files below docs/ and those of OUTSIDE: README.md is its home page. Links are
rewritten for that, and comments for the tests are removed.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
# Files of the repository -> their place in the site.
OUTSIDE: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "deploy/webhook.yaml": "deploy/webhook.yaml",
}

_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=[)\s])")
_TEST_COMMENT = re.compile(r"^ *<!-- test: .*? -->\n", re.S | re.M)


def site_page(markdown: str, place: str) -> str:
    """The text of a page of the site; `place` is its path there."""
    source = next((s for s, p in OUTSIDE.items() if p == place), f"docs/{place}")
    return _LINK.sub(_link_rewriter(source, place), _TEST_COMMENT.sub("", markdown))


def _link_rewriter(source: str, place: str) -> Callable[[re.Match[str]], str]:
    """Replaces a link of the file `source` by one of the page `place`."""

    def rewrite(link: re.Match[str]) -> str:
        path, mark, anchor = link[1].partition("#")
        if not path or ":" in path:
            return link[1]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if (ROOT / target / "README.md").exists():
            target += "/README.md"
        target = OUTSIDE.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(target, posixpath.dirname(place) or ".") + mark + anchor

    return rewrite
