"""The texts of events by release."""

from __future__ import annotations

import pytest

from transom.kubelet.event_texts import event_texts
from transom.kubelet.features import crash_loop_backoff


@pytest.mark.parametrize(
    ("release", "created", "started"),
    [
        ((1, 20), "Created container c", "Started container c"),
        ((1, 28), "Created container c", "Started container c"),
        ((1, 29), "Created container: c", "Started container c"),
        ((1, 34), "Created container: c", "Started container c"),
        ((1, 35), "Container created", "Container started"),
    ],
)
def test_containers(release: tuple[int, int], created: str, started: str) -> None:
    texts = event_texts(release)
    assert texts.container_created("c") == created
    assert texts.container_started("c") == started


@pytest.mark.parametrize(
    ("release", "text"),
    [
        ((1, 20), 'Successfully pulled image "i" in 2.00075s'),
        ((1, 25), 'Successfully pulled image "i" in 1.00055s (2.00075s including waiting)'),
        (
            (1, 30),
            'Successfully pulled image "i" in 1s (2s including waiting). Image size: 7 bytes.',
        ),
    ],
)
def test_pulled_images(release: tuple[int, int], text: str) -> None:
    assert event_texts(release).image_pulled("i", 1.00055, 2.00075, 7) == text


def test_the_container_that_backs_off() -> None:
    assert event_texts((1, 25)).container_backs_off("c", "p_n(u)") == (
        "Back-off restarting failed container"
    )
    assert event_texts((1, 26)).container_backs_off("c", "p_n(u)") == (
        "Back-off restarting failed container c in pod p_n(u)"
    )


def test_the_back_off_of_crashing_containers() -> None:
    assert crash_loop_backoff((1, 20), {}, None) == (10.0, 300.0)
    assert crash_loop_backoff((1, 34), {}, 2.0) == (10.0, 300.0)
    assert crash_loop_backoff((1, 36), {}, 2.0) == (2.0, 2.0)
    faster = {"ReduceDefaultCrashLoopBackOffDecay": True}
    assert crash_loop_backoff((1, 36), faster, None) == (1.0, 60.0)
    assert crash_loop_backoff((1, 36), faster, 120.0) == (1.0, 120.0)


def test_probes_that_could_not_run() -> None:
    assert event_texts((1, 32)).probe_errored("Liveness", "gone") == "Liveness probe errored: gone"
    assert event_texts((1, 33)).probe_errored("Liveness", "gone") == (
        "Liveness probe errored and resulted in unknown state: gone"
    )


def test_images_that_do_not_free_enough_space() -> None:
    numbers = (20, 5, 91, 3 << 29)
    assert event_texts((1, 25)).image_space_missing(*numbers) == (
        "failed to garbage collect required amount of images. Wanted to free 20 bytes, but freed "
        "5 bytes"
    )
    assert event_texts((1, 26)).image_space_missing(*numbers) == (
        "Failed to garbage collect required amount of images. Attempted to free 20 bytes, but only "
        "found 5 bytes eligible to free."
    )
    assert event_texts((1, 35)).image_space_missing(*numbers) == (
        "Insufficient free disk space on the node's image filesystem (91% of 1.5 GiB used). Failed "
        "to free sufficient space by deleting unused images (freed 5 bytes). Investigate disk "
        "usage, as it could be used by active images, logs, volumes, or other data."
    )
