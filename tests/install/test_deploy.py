"""The files for containers, CI systems and editors: they are what their tools read, and their
commands work.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.dist import krew_plugin
from tools.locked import ROOT

from transom.cli.main import VERBS, make_parser

DEPLOY = ROOT / "deploy"
SCRIPT = DEPLOY / "ci/transom-ci.sh"
FEATURE = DEPLOY / "devcontainer/src/transom"


class GitLabLoader(yaml.SafeLoader):
    """GitLab's own tag takes values of other jobs."""


GitLabLoader.add_constructor("!reference", lambda loader, node: loader.construct_sequence(node))


def instructions(name: str) -> list[tuple[str, str]]:
    text = re.sub(r"(?m)^#.*\n", "", (DEPLOY / name).read_text()).replace("\\\n", " ")
    rows = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return [(word, rest) for word, rest in rows]


def test_the_image_runs_a_command_that_exists_and_not_as_root() -> None:
    last = dict(instructions("Containerfile"))
    assert json.loads(last["ENTRYPOINT"]) == ["transom"]
    verb, *options = json.loads(last["CMD"])
    args = make_parser(verb)[0].parse_args(options)
    assert (args.bind_address, args.port) == ("0.0.0.0", 6443)
    assert str(args.port) in last["EXPOSE"].split()
    assert last["USER"].isdigit() and last["USER"] != "0"
    program, check = json.loads(last["HEALTHCHECK"].partition("CMD ")[2])
    assert program == "transom" and check in VERBS
    assert "linux/amd64" not in str(last), "the base is an index of all platforms"


def test_what_the_images_copy_exists() -> None:
    for name in ("Containerfile", "Dockerfile"):
        for word, rest in instructions(name):
            if word == "COPY" and not rest.startswith("--from"):
                *sources, _ = rest.split()
                assert all((ROOT / source).exists() for source in sources), rest


@pytest.mark.timeout(600)
def test_the_image_can_be_built(tmp_path: Path) -> None:
    if shutil.which("buildah") is None:
        pytest.skip("buildah is not installed")
    command = ["buildah", "build", "--layers", "--format", "docker"]
    command += ["--file", str(DEPLOY / "Containerfile"), "--tag", "transom-test", str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and "pinging container registry" in done.stderr:
        pytest.skip("the base image cannot be fetched")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "is not supported" not in done.stderr, "the health check is part of the image"
    subprocess.run(["buildah", "rmi", "transom-test"], check=True, capture_output=True)


def test_the_compose_file() -> None:
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    cluster, tests = document["services"]["cluster"], document["services"]["tests"]
    assert (DEPLOY / cluster["build"]["context"] / cluster["build"]["dockerfile"]).exists()
    verb, *options = cluster["command"]
    args = make_parser(verb)[0].parse_args(options)
    assert str(args.kubeconfig) == tests["environment"]["KUBECONFIG"]
    assert all(port.startswith("127.0.0.1:") for port in cluster["ports"])
    assert tests["depends_on"]["cluster"]["condition"] == "service_healthy"
    volumes = {row.partition(":")[0] for service in (cluster, tests) for row in service["volumes"]}
    assert volumes == set(document["volumes"])


def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    return found


def test_the_action_uses_inputs_that_exist() -> None:
    document = action()
    assert {"name", "description", "inputs", "outputs", "runs"} <= set(document)
    assert document["runs"]["using"] == "composite"
    text = json.dumps(document["runs"])
    used = set(re.findall(r"inputs\.([a-z-]+)", text))
    assert used == set(document["inputs"])
    for step in document["runs"]["steps"]:
        assert step["shell"] == "bash", "composite steps need a shell"
        subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)
        for part in re.findall(r"transom-ci\.sh\" (\w+)", step["run"]):
            assert re.search(rf"^ *[\w |]*\b{part}\b[\w |]*\)", SCRIPT.read_text(), re.M), part
    identifiers = {step.get("id") for step in document["runs"]["steps"]}
    assert "up" in identifiers and "steps.up.outputs" in document["outputs"]["kubeconfig"]["value"]


@pytest.fixture
def ci(tmp_path: Path) -> dict[str, str]:
    """The environment of a step, with this checkout's transom on the PATH."""
    command = tmp_path / "bin/transom"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m transom.cli.entry "$@"\n')
    command.chmod(0o755)
    env = {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_ACTIONS": "true",
        "GITHUB_ACTION_PATH": str(ROOT),
        "TRANSOM_NAME": "ci",
        "TRANSOM_REPORT": str(tmp_path / "report.tar.gz"),
    }
    for name in ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY"):
        file = tmp_path / name
        file.touch()
        env[name] = str(file)
    return env


def step(ci: dict[str, str], name: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a step of the action as the runner does."""
    found = next(row for row in action()["runs"]["steps"] if row["name"] == name)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", found["run"]],
        env={**ci, **more},
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.e2e
def test_the_steps_of_the_action(ci: dict[str, str], tmp_path: Path) -> None:
    assert step(ci, "Install Transom", TRANSOM_VERSION="skip").returncode == 0
    try:
        options = {"TRANSOM_UP": "--no-nodes", "RELEASE": "1.32", "LINUX": "", "WINDOWS": ""}
        up = step(ci, "Start the cluster", **options)
        assert up.returncode == 0, up.stderr
        kubeconfig = str(tmp_path / "transom.kubeconfig")
        assert Path(ci["GITHUB_OUTPUT"]).read_text() == f"kubeconfig={kubeconfig}\n"
        assert f"KUBECONFIG={kubeconfig}\n" in Path(ci["GITHUB_ENV"]).read_text()
        assert yaml.safe_load(Path(kubeconfig).read_text())["current-context"] == "ci"
        report = step(ci, "Report", KUBECONFIG=kubeconfig)
        assert report.returncode == 0, report.stderr
        assert tarfile.is_tarfile(ci["TRANSOM_REPORT"])
        assert "transom doctor" in Path(ci["GITHUB_STEP_SUMMARY"]).read_text()
    finally:
        deleted = step(ci, "Delete the cluster")
    assert deleted.stdout == "Cluster ci deleted.\n"


def test_lint_annotates_the_pull_request(ci: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "hostPID": True,
            "containers": [{"name": "web", "image": "nanoserver:1809"}],
        },
    }
    file.write_text(yaml.safe_dump(pod))
    done = step(ci, "Check manifests", TRANSOM_LINT=str(file))
    assert done.returncode == 1 and done.stdout.startswith("::"), done.stdout + done.stderr


def test_the_script_of_the_ci_systems() -> None:
    subprocess.run(["sh", "-n", str(SCRIPT)], check=True)
    done = subprocess.run([str(SCRIPT), "nonsense"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("usage:")


def test_the_gitlab_template() -> None:
    text = (DEPLOY / "ci/transom.gitlab-ci.yml").read_text()
    document = yaml.load(text, GitLabLoader)
    assert all(name.startswith(".") for name in document), "a template starts no jobs"
    for job in document.values():
        assert job.get("extends", ".transom-install") in document
        for key in ("before_script", "script", "after_script"):
            for line in job.get(key, ()):
                if isinstance(line, str):
                    subprocess.run(["sh", "-n"], input=line, text=True, check=True)
                    for words in re.findall(r"transom ([a-z]+) ([^$;\n]*)", line):
                        assert words[0] in VERBS
                        options = set(make_parser(words[0])[0]._option_string_actions)
                        assert set(re.findall(r"--[a-z-]+", words[1])) <= options


def test_the_devcontainer_feature(tmp_path: Path) -> None:
    document = json.loads((FEATURE / "devcontainer-feature.json").read_text())
    assert {"id", "version", "name", "options"} <= set(document)
    assert document["id"] == FEATURE.name
    script = (FEATURE / "install.sh").read_text()
    for option in document["options"]:
        assert re.search(rf"\$\{{?{option.upper()}\b", script), option
    assert document["postStartCommand"] == "/usr/local/share/transom/start"


def test_the_devcontainer_feature_installs(tmp_path: Path) -> None:
    """With a pip that notes what it would install."""
    fakes = tmp_path / "fakes"
    fakes.mkdir()
    python = fakes / "python3"
    python.write_text(
        '#!/bin/sh\n[ "$1" = -m ] || exit 0\n'
        'mkdir -p "$3/bin"\n'
        'printf "#!/bin/sh\\necho pip \\"\\$@\\" >> %s/log\\n" "$ROOT" > "$3/bin/pip"\n'
        'printf "#!/bin/sh\\necho script\\n" > "$3/bin/transom"\n'
        'chmod +x "$3"/bin/*\n'
    )
    python.chmod(0o755)
    env = {
        "PATH": f"{fakes}:/usr/bin:/bin",
        "ROOT": str(tmp_path),
        "VERSION": "0.1.0",
        "EXTRAS": "fast",
        "OPTIONS": "--windows 1",
    }
    subprocess.run(["sh", str(FEATURE / "install.sh")], env=env, check=True)
    assert "transom-k8s[fast]==0.1.0" in (tmp_path / "log").read_text()
    start = tmp_path / "usr/local/share/transom/start"
    assert start.read_text() == "#!/bin/sh\nexec transom up --windows 1\n"
    assert (tmp_path / "usr/local/bin/transom").is_symlink()
    assert (tmp_path / "etc/bash_completion.d/transom").read_text() == "script\n"


def test_the_plugin_for_krew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KREW_URL", "https://files.example")
    krew_plugin(tmp_path, 1)
    manifest = yaml.safe_load((tmp_path / "krew.yaml").read_text())
    archive = next(tmp_path.glob("kubectl-transom-*.tar.gz"))
    platform = manifest["spec"]["platforms"][0]
    assert manifest["metadata"]["name"] == "transom" and manifest["kind"] == "Plugin"
    assert re.fullmatch(r"v\d+\.\d+\.\d+", manifest["spec"]["version"])
    assert len(manifest["spec"]["shortDescription"]) <= 50
    assert platform["uri"] == f"https://files.example/{archive.name}"
    with tarfile.open(archive) as packed:
        assert {row["from"] for row in platform["files"]} == set(packed.getnames())
        assert packed.getmember(platform["bin"]).mode == 0o755


def test_the_plugin_says_what_it_needs(tmp_path: Path) -> None:
    plugin = ["/bin/sh", str(DEPLOY / "krew/kubectl-transom"), "version"]
    without = subprocess.run(plugin, env={"PATH": "/nowhere"}, capture_output=True, text=True)
    assert without.returncode == 1 and "pip install transom-k8s" in without.stderr
    command = tmp_path / "transom"
    command.write_text('#!/bin/sh\necho "found $1"\n')
    command.chmod(0o755)
    found = subprocess.run(plugin, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert found.stdout == "found version\n"
