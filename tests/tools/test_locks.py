"""The lock files, the bill of materials that is generated from them, and the query for known
vulnerabilities.
"""

from __future__ import annotations

import json
import re
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tools.locked import BUILD, DEVELOPMENT, FAST, ROOT, RUNTIME, SITE, Locked, read_lock, without

from tools import audit, sbom

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pinned(path: Path) -> dict[str, Locked]:
    return {package.name: package for package in read_lock(path)}


@pytest.mark.parametrize(
    "path", [RUNTIME, FAST, DEVELOPMENT, BUILD, SITE], ids=lambda path: path.name
)
def test_every_package_is_pinned_with_hashes(path: Path) -> None:
    lines = [
        line
        for line in path.read_text().splitlines()
        if line.strip() and not line.lstrip().startswith(("#", "--hash"))
    ]
    assert all(re.match(r"[a-z0-9.-]+==\S+( ; .*)? \\$", line) for line in lines)
    found = read_lock(path)
    assert len(found) == len(lines) and all(package.hashes for package in found)


@pytest.mark.parametrize(
    ("path", "extras"),
    [(RUNTIME, []), (FAST, ["fast"]), (DEVELOPMENT, ["dev"]), (SITE, ["docs"])],
    ids=["runtime", "fast", "dev", "docs"],
)
def test_what_the_project_needs_is_locked(path: Path, extras: list[str]) -> None:
    found, project = pinned(path), PROJECT["project"]
    wanted = [
        *(project["dependencies"] if path != FAST else ()),
        *(row for extra in extras for row in project["optional-dependencies"][extra]),
    ]
    for requirement in map(Requirement, wanted):
        package = found[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(Version(package.version), prereleases=True), (
            "run make lock"
        )


def test_the_lock_files_agree() -> None:
    runtime, fast, development, build, site = map(pinned, (RUNTIME, FAST, DEVELOPMENT, BUILD, SITE))
    assert not set(fast) & set(runtime)
    for name, package in (site | runtime | fast | build).items():
        other = development.get(name)
        assert name not in runtime or other is not None
        assert other is None or (other.version, other.hashes) == (package.version, package.hashes)
    assert {
        canonicalize_name(Requirement(row).name) for row in PROJECT["build-system"]["requires"]
    } <= set(build)


def test_packages_are_left_out_with_their_hashes() -> None:
    text = "# head\na==1 \\\n    --hash=sha256:1\n    # via x\nb==2 \\\n    --hash=sha256:2\n"
    assert without(text, {"a"}) == "# head\nb==2 \\\n    --hash=sha256:2\n"


def test_make_installs_nothing_without_hashes() -> None:
    images = [(ROOT / "deploy" / name).read_text() for name in ("Dockerfile", "Containerfile")]
    recipes = "".join([(ROOT / "Makefile").read_text(), *images])
    steps = [
        step for line in recipes.replace("\\\n", " ").splitlines() for step in line.split("&&")
    ]
    installs = [step for step in steps if re.search(r"\$\(PIP\) -|pip (install|wheel) -", step)]
    assert len(installs) > 5
    for step in installs:
        # With --no-deps pip only installs what is listed: older versions of pip look for the newest
        # version of a dependency with extras (name[extra]>=1), which the lock file does not have.
        assert "--no-deps" in step or step.startswith("PIP :="), step
        assert "--require-hashes" in step or " -r " not in step, step
    for image in images:
        assert re.search(r"^ARG BASE=\S+@sha256:[0-9a-f]{64}$", image, re.MULTILINE)


def test_the_bill_of_materials() -> None:
    packages = read_lock(RUNTIME)
    made = sbom.document(packages, sbom.SUMS.read_text(), PROJECT["project"], 0)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.5")
    assert made["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"
    listed = {component["bom-ref"]: component for component in made["components"]}
    assert len(listed) == len(made["components"])
    for package in packages:
        component = listed[f"pkg:pypi/{package.name}@{package.version}"]
        digests = [row["content"] for row in component["externalReferences"][0]["hashes"]]
        assert digests == sorted(package.hashes)
    assert listed["file:winrun.exe"]["hashes"][0]["alg"] == "SHA-256"
    refs = {row["ref"]: row["dependsOn"] for row in made["dependencies"]}
    own = made["metadata"]["component"]["bom-ref"]
    direct = {
        canonicalize_name(Requirement(row).name) for row in PROJECT["project"]["dependencies"]
    }
    assert direct <= {ref.removeprefix("pkg:pypi/").partition("@")[0] for ref in refs[own]}
    assert set().union(*refs.values()) <= set(listed)
    assert made == sbom.document(packages, sbom.SUMS.read_text(), PROJECT["project"], 0), (
        "the same bytes each time"
    )


@pytest.fixture
def database() -> Iterator[tuple[str, dict[str, Any]]]:
    """A server that answers as OSV does, for packages whose ids are in the dictionary."""
    known: dict[str, Any] = {"status": 200}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            rows = [
                {"vulns": [{"id": one} for one in known.get(q["package"]["purl"], ())]}
                for q in queries
            ]
            body = json.dumps({"results": [row if row["vulns"] else {} for row in rows]}).encode()
            self.send_response(known["status"])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", known
    server.shutdown()
    thread.join()
    server.server_close()


def test_known_vulnerabilities_are_found(
    database: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, known = database
    packages = [Locked("h2", "4.1.0"), Locked("idna", "3.1")]
    assert audit.vulnerabilities(packages, address) == {}
    known["pkg:pypi/h2@4.1.0"] = ["GHSA-1", "PYSEC-2"]
    assert audit.vulnerabilities(packages, address) == {"h2 4.1.0": ["GHSA-1", "PYSEC-2"]}
    monkeypatch.setattr(audit, "IGNORED", {"GHSA-1": "not reachable"})
    assert audit.vulnerabilities(packages, address) == {"h2 4.1.0": ["PYSEC-2"]}


def test_an_unavailable_database_is_not_an_error(
    database: tuple[str, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, known = database
    known["status"] = 503
    for unreachable in (address, "http://127.0.0.1:1"):
        with pytest.raises(audit.Unreachable):
            audit.vulnerabilities([Locked("h2", "4.1.0")], unreachable)

    def fail(packages: object) -> dict[str, list[str]]:
        raise audit.Unreachable("no way")

    monkeypatch.setattr(audit, "vulnerabilities", fail)
    assert audit.main() == 0
    assert capsys.readouterr().err == "audit: skipped: no way\n"
