"""Commands of findings contain names that users of the cluster choose; an administrator pastes them."""

from __future__ import annotations

import pytest

from transom.doctor.findings import is_safe_command, sole_command
from transom.doctor.repairs import create_configuration


@pytest.mark.parametrize("name", ["a; id", "$(id)", "`id`", "a\nid", "a'; id; '", 'a" | id "'])
def test_names_run_nothing(name: str) -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {
            "containers": [
                {"env": [{"valueFrom": {"configMapKeyRef": {"name": name, "key": name}}}]}
            ]
        },
    }
    (command,) = create_configuration(pod, "ConfigMap", name)
    assert is_safe_command(command)


@pytest.mark.parametrize("name", ["a; id", "$(id)", "`id`", "a\nid", '"$(id)"', "'a'|id"])
def test_a_command_with_an_unquoted_name_is_not_printed(name: str) -> None:
    assert not is_safe_command(f"kubectl create configmap {name}")


@pytest.mark.parametrize(
    "line",
    [
        "kubectl scale deployment web --namespace default --replicas 3",
        'transom node exec windows-1 -- "Get-HnsEndpoint | Remove-HnsEndpoint"',
        "kubectl patch pod p --patch '{\"spec\":{}}' --output json "
        "| kubectl replace --force --filename -",
    ],
)
def test_what_doctor_prints_is_safe(line: str) -> None:
    assert is_safe_command(line)


@pytest.mark.parametrize(
    ("remedy", "commands"),
    [
        ("Start it: transom node start windows-1", ("transom node start windows-1",)),
        ("Uncordon it: kubectl uncordon windows-1", ("kubectl uncordon windows-1",)),
        ("Correct the image's name and tag: kubectl set image, or change the template.", ()),
        ("Create it: kubectl create secret", ()),
        ("Read its log: kubectl logs a --namespace b", ()),
    ],
)
def test_a_command_of_a_remedy_names_its_object(remedy: str, commands: tuple[str, ...]) -> None:
    assert sole_command(remedy) == commands
