"""The messages of the simulated runtimes are those of the records."""

from __future__ import annotations

import pytest

from transom.runtime.sim.names import parse_image_name
from transom.runtime.sim.texts import TEXTS
from transom.windows.limits import LIMITS

REF = parse_image_name("example.com/app:1")
DOCKER, CONTAINERD = TEXTS["docker"], TEXTS["containerd"]


@pytest.mark.parametrize(
    ("id", "printed"),
    [
        ("WIN-OS-004", DOCKER.other_build("c1", "w1")),
        ("WIN-OS-004", CONTAINERD.other_build("c1", "w1")),
        ("WIN-OS-005", DOCKER.no_platform(REF, "windows/amd64 10.0.17763").description),
        ("WIN-OS-006", CONTAINERD.no_platform(REF, "windows/amd64 10.0.17763").description),
        ("WIN-OS-007", DOCKER.other_system(REF, "linux").description),
        ("WIN-POD-001", DOCKER.other_system(REF, "linux").description),
        ("WIN-POD-002", DOCKER.sandbox_start("s1", "web", "network host not found").description),
        ("WIN-RUN-003", DOCKER.no_handler("runsc").description),
        ("WIN-CTR-002", DOCKER.cannot_start("c1", "windows", "not-found", "sh", "w1").message),
        ("WIN-CTR-002", CONTAINERD.cannot_start("c1", "windows", "not-found", "sh", "w1").message),
        ("WIN-CTR-003", DOCKER.exec_text("c1", "windows", "not-found", "sh")),
        ("WIN-CTR-003", CONTAINERD.exec_text("c1", "windows", "not-found", "sh")),
        ("WIN-NODE-007", DOCKER.exec_text("c1", "windows", "not-found", "wincat.exe")),
        ("WIN-SEC-018", DOCKER.cannot_start("c1", "windows", "user", "bob", "w1").message),
        ("WIN-SEC-018", CONTAINERD.cannot_start("c1", "windows", "user", "bob", "w1").message),
    ],
)
def test_what_runtimes_say(id: str, printed: str) -> None:
    expected = LIMITS[id].message.format(
        platform="windows/amd64 10.0.17763", pod="web", handler="runsc"
    )
    assert expected and expected in printed
