"""The metrics of volumes: what each release counts, and the volumes of a kubelet."""

from __future__ import annotations

import pytest
from tests.kubelet.machines import UID, Machine
from tests.kubelet.volumes.test_manager import config_map, secret, store, with_volumes

from transom.kit.prometheus import render_metrics
from transom.kubelet.volumes.metrics import StorageMetrics
from transom.machinery.releases import Release
from transom.machinery.releases.metrics import metric_rules

BY = 'operation_name="volume_mount"'
PLUGIN = 'volume_plugin="kubernetes.io/nfs"'


@pytest.mark.parametrize(
    ("minor", "durations", "errors"), [(20, 1, True), (22, 2, True), (23, 2, False), (36, 2, False)]
)
def test_each_release_has_its_names(minor: int, durations: int, errors: bool) -> None:
    metrics = StorageMetrics(metric_rules(Release(1, minor)))
    metrics.record("kubernetes.io/nfs", "volume_mount", 0.2, failed=False)
    metrics.record("kubernetes.io/nfs", "volume_mount", 7, failed=True)
    printed = render_metrics(metrics.collect())
    assert printed.count("storage_operation_duration_seconds_count{") == durations
    assert ("storage_operation_errors_total{" in printed) is errors
    if errors:
        assert f"storage_operation_errors_total{{{PLUGIN},{BY}}} 1\n" in printed
        status = f'storage_operation_status_count{{{PLUGIN},{BY},status="fail-unknown"}} 1\n'
        assert status in printed
    if durations == 2:
        labels = f'{PLUGIN},{BY},status="fail-unknown",migrated="false"'
        assert f"storage_operation_duration_seconds_sum{{{labels}}} 7\n" in printed


def test_volumes_of_a_kubelet() -> None:
    machine = Machine()
    store(machine)
    with pytest.raises(TimeoutError):
        machine.run(machine.volumes.mount(with_volumes(secret("late"), config_map())))
    printed = render_metrics(machine.volumes.collect_metrics())
    total, operations = "volume_manager_total_volumes", "storage_operation_status_count"
    for plugin, actual in (("configmap", True), ("secret", False)):
        name = f'plugin_name="kubernetes.io/{plugin}"'
        assert f'{total}{{{name},state="desired_state_of_world"}} 1\n' in printed
        assert (f'{total}{{{name},state="actual_state_of_world"}} 1\n' in printed) is actual
    failed = f'{operations}{{volume_plugin="kubernetes.io/secret",{BY},status="fail-unknown"}}'
    assert failed in printed
    machine.run(machine.volumes.unmount(UID))
    printed = render_metrics(machine.volumes.collect_metrics())
    unmounted = (
        f'{operations}{{volume_plugin="kubernetes.io/configmap",operation_name="volume_unmount"'
    )
    assert f'{unmounted},status="success"}} 1\n' in printed and f"{total}{{" not in printed
