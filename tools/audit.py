"""A part of `make lint`: asks the OSV database (osv.dev) for known vulnerabilities of everything
that the lock files pin.

If the database cannot be reached, it prints one line and succeeds. A vulnerability is an error:
upgrade with `make lock UPGRADE=PACKAGE`, or name it in IGNORED with the reason.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from tools.locked import BUILD, DEVELOPMENT, RUNTIME, SITE, Locked, read_lock

DATABASE = os.environ.get("OSV_URL", "https://api.osv.dev")
IGNORED: dict[str, str] = {}  # id -> why it does not concern Transom
_SECONDS = 15


class Unreachable(Exception):
    """The database does not answer."""


def vulnerabilities(packages: Sequence[Locked], database: str = DATABASE) -> dict[str, list[str]]:
    """Ids by package. Raises Unreachable."""
    queries = [{"package": {"purl": package.purl}} for package in packages]
    request = urllib.request.Request(
        f"{database}/v1/querybatch",
        json.dumps({"queries": queries}).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            results: list[dict[str, Any]] = json.load(answer)["results"]
    except (OSError, ValueError, KeyError) as problem:
        raise Unreachable(
            f"{database} cannot be asked: {getattr(problem, 'reason', problem)}"
        ) from problem
    if len(results) != len(packages):
        raise Unreachable(f"{database} has answered {len(results)} of {len(packages)} questions")
    found = {}
    for package, result in zip(packages, results, strict=True):
        ids = [row["id"] for row in result.get("vulns") or () if row["id"] not in IGNORED]
        if ids:
            found[f"{package.name} {package.version}"] = ids
    return found


def main() -> int:
    packages = {
        package.purl: package
        for path in (RUNTIME, BUILD, DEVELOPMENT, SITE)
        for package in read_lock(path)
    }
    try:
        found = vulnerabilities(list(packages.values()))
    except Unreachable as problem:
        print(f"audit: skipped: {problem}", file=sys.stderr)
        return 0
    for package, ids in found.items():
        print(f"audit: {package}: {', '.join(ids)}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
