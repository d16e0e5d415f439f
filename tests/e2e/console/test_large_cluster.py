"""1,000 nodes and 10,000 pods in the picture of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.e2e.console.conftest import wait_until
from tests.e2e.console.large_cluster import NODES, PODS, running_large_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.loop_budget(None)]

# Far below what a busy machine needs for a frame; a drawing that visits every pod for each pod
# would take seconds.
_SLOWEST_FRAME = 250.0
_MEASURE = """async (steps) => {
  const picture = window.transomPicture;
  const times = [];
  for (const factor of steps) {
    picture.zoom(factor);
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    times.push(picture.drawMilliseconds);
  }
  return times;
}"""


def test_ten_thousand_pods_stay_fluid(
    new_page: Callable[..., Any], take_screenshot: Callable[[Any, str], None]
) -> None:
    with running_large_cluster() as large:
        page = new_page()
        page.goto(large.console.make_login_link())
        wait_until(page, f"window.transomPicture.model.pods.size === {PODS}", 60)
        wait_until(page, f"window.transomPicture.model.nodes.size === {NODES}", 60)
        wait_until(page, "document.querySelector('[data-count=problem]').textContent === '104'")
        take_screenshot(page, "cluster-large")
        times = sorted(page.evaluate(_MEASURE, [1.5] * 10 + [0.7] * 10))
        assert times[len(times) // 2] < _SLOWEST_FRAME, times
        page.click("#zoom-fit")
        large.change_pod(5, "Failed")
        wait_until(page, "window.transomPicture.model.pods.get('team-5/pod-5')[2] === 'problem'")
        wait_until(page, "document.querySelector('[data-count=problem]').textContent === '105'")
        page.click("#show-table")
        page.wait_for_selector(f"#table-box >> text=Pods ({PODS})")
        rows = "document.querySelectorAll('#table-box tbody tr').length"
        assert page.evaluate(rows) == 200
        page.fill("#filter", "team-5/pod-5 failed")
        page.wait_for_selector("#table-box >> text=Pods (1)")
