"""`make sbom`: the software bill of materials, as CycloneDX JSON on standard output.

It lists what requirements.lock pins, with the hashes of all files of each version, and the native
programs that the package ships. The same sources make the same bytes: time and serial number follow
from them.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import time
import tomllib
import uuid
from typing import Any

from tools.locked import ROOT, RUNTIME, Locked, read_lock

SUMS = ROOT / "src/transom/runtime/wine/native/built/SUMS"


def document(
    packages: list[Locked], sums: str, project: dict[str, Any], now: float
) -> dict[str, Any]:
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    components = [_component(package) for package in packages] + [
        _shipped(line) for line in sums.splitlines()
    ]
    needs: dict[str, list[str]] = {own: [], **{package.purl: [] for package in packages}}
    names = {package.name: package.purl for package in packages} | {project["name"]: own}
    for package in packages:
        for parent in package.via:
            needs[names.get(parent, own)].append(package.purl)
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([components, own], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
            "tools": {"components": [{"type": "application", "name": "tools/sbom.py"}]},
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": project["name"],
                "version": project["version"],
                "description": project["description"],
                "purl": own,
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": components,
        "dependencies": [
            {"ref": ref, "dependsOn": sorted(set(found))} for ref, found in sorted(needs.items())
        ],
    }


def _component(package: Locked) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "scope": "optional" if package.marker else "required",
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{package.name}/{package.version}/",
                "hashes": [
                    {"alg": "SHA-256", "content": digest} for digest in sorted(package.hashes)
                ],
            }
        ],
    }
    if name := _license(package.name):
        found["licenses"] = [{"license": {"name": name}}]
    return found


def _license(name: str) -> str:
    """As the installed package states it; empty when it is not installed."""
    try:
        stated = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
    if expression := stated.get("License-Expression"):
        return expression
    classified = [
        row.rpartition(" :: ")[2]
        for row in stated.get_all("Classifier") or ()
        if row.startswith("License ::")
    ]
    return classified[0] if classified else (stated.get("License") or "").partition("\n")[0]


def _shipped(line: str) -> dict[str, Any]:
    name, source, made, compiler = line.split(maxsplit=3)
    return {
        "type": "file",
        "bom-ref": f"file:{name}",
        "name": name,
        "description": f"built from native/ by {compiler}",
        "hashes": [{"alg": "SHA-256", "content": made}],
        "properties": [{"name": "transom:sources", "value": source}],
    }


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    changed = float(os.environ.get("SOURCE_DATE_EPOCH") or RUNTIME.stat().st_mtime)
    print(json.dumps(document(read_lock(RUNTIME), SUMS.read_text(), project, changed), indent=1))


if __name__ == "__main__":
    main()
