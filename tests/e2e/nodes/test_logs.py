"""kubectl logs, with every option it has for what to show."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from .conftest import Space

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def test_options_of_logs(home: Space) -> None:
    with home.running("logs", "--follow", "talker", "--container=count") as following:
        assert following.stdout is not None
        assert [following.stdout.readline() for _ in range(4)][
            3
        ] == "count 4\n"  # some time has passed then
    assert home("logs", "talker", "--container=once") == "to out\nto err\n"
    assert home("logs", "talker", "--container=once", "--limit-bytes=9") == "to out\nto"
    tail = home("logs", "talker", "--container=count", "--tail=2", "--timestamps").splitlines()
    assert len(tail) == 2
    assert all(
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z count \d+", line) for line in tail
    )
    everything = home("logs", "talker", "--all-containers", "--prefix").splitlines()
    assert {line.split("] ")[0] for line in everything} == {"[pod/talker/count", "[pod/talker/once"}
    assert home("logs", "--selector=app=talk", "--container=once", "--tail=1") == "to err\n"
    assert "count 1\n" not in home("logs", "talker", "--container=count", "--since=1s")
    began = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert home("logs", "talker", "--container=count", f"--since-time={began}").startswith(
        "count 1\n"
    )


def test_logs_are_followed(home: Space) -> None:
    with home.running("logs", "--follow", "talker", "--container=count", "--tail=1") as following:
        assert following.stdout is not None
        numbers = [int(following.stdout.readline().split()[1]) for _ in range(3)]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]


def test_a_followed_log_ends_with_its_container(ns: Space) -> None:
    ns(
        "run",
        "short",
        "--image=busybox:1.32",
        "--restart=Never",
        '--overrides={"spec":{"nodeSelector":{"kubernetes.io/os":"linux"}}}',
        "--",
        "sh",
        "-c",
        "echo a; sleep 1; echo b",
    )
    ns.until(lambda pod: pod["status"]["phase"] != "Pending", "pod/short")
    assert ns("logs", "--follow", "short") == "a\nb\n"


def test_the_log_of_the_container_before(home: Space) -> None:
    assert home("logs", "--previous", "crashed") == "first\n"
    assert home("logs", "crashed") == "second\n"
    refused = home.done("logs", "--previous", "talker", "--container=once")
    assert refused.stderr.endswith(
        'previous terminated container "once" in pod "talker" not found\n'
    )
    nameless = home.done("logs", "talker", "--container=none")
    assert nameless.stderr == "error: container none is not valid for pod talker\n"
