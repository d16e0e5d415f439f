"""The texts of a kubelet's events about containers and images that differ by release."""

from __future__ import annotations

from functools import lru_cache

from transom.kit.durations import format_duration
from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.machinery.releases import Release
from transom.machinery.releases.kubelet import kubelet_has


class EventTexts(NamedTuple):
    """`hidden_hooks`: events do not show the error of a hook, which may contain secrets."""

    created: str
    started: str
    back_off: str
    pulled: str
    hidden_hooks: bool
    hook_reason: bool  # the reason of a failed postStart hook is only PostStartHookError
    kept_pull_errors: bool  # the message of ImagePullBackOff shows the last error
    rejected: str
    probe_error: str
    disk_full: str

    def container_created(self, name: str) -> str:
        return self.created.format(name=name)

    def container_started(self, name: str) -> str:
        return self.started.format(name=name)

    def container_backs_off(self, name: str, pod: str) -> str:
        return self.back_off.format(name=name, pod=pod)

    def probe_errored(self, title: str, error: str) -> str:
        return self.probe_error.format(title=title, state="unknown", error=error)

    def image_space_missing(self, wanted: int, freed: int, usage: int, capacity: int) -> str:
        return self.disk_full.format(
            wanted=wanted, freed=freed, usage=usage, capacity=_size(capacity)
        )

    def image_pulled(self, image: str, took: float, waited: float, size: int) -> str:
        if "{waited}" in self.pulled and "{size}" in self.pulled:
            took, waited = int(took * 1000) / 1000, int(waited * 1000) / 1000
        elif "{waited}" not in self.pulled:
            took = waited
        return self.pulled.format(
            image=go_quote(image),
            took=format_duration(took),
            waited=format_duration(waited),
            size=size,
        )


@lru_cache(maxsize=32)
def event_texts(release: tuple[int, int]) -> EventTexts:
    at = Release(*release)
    created, started = "Created container {name}", "Started container {name}"
    if kubelet_has(at, "UnnamedContainerEvents"):
        created, started = "Container created", "Container started"
    elif kubelet_has(at, "ColonInContainerEvents"):
        created, started = "Created container: {name}", "Started container {name}"
    pulled = "Successfully pulled image {image} in {took}"
    if kubelet_has(at, "WaitingTimeOfPulls"):
        pulled += " ({waited} including waiting)"
    if kubelet_has(at, "ImageSizeOfPulls"):
        pulled += ". Image size: {size} bytes."
    back_off = "Back-off restarting failed container"
    if kubelet_has(at, "BackOffNamesContainer"):
        back_off += " {name} in pod {pod}"
    return EventTexts(
        created,
        started,
        back_off,
        pulled,
        kubelet_has(at, "HookErrorsHidden"),
        kubelet_has(at, "PlainHookReasons"),
        kubelet_has(at, "PullErrorsKept"),
        "Pod was rejected: " if kubelet_has(at, "RejectedPods") else "Pod ",
        "{title} probe errored and resulted in {state} state: {error}"
        if kubelet_has(at, "ProbeErrorsWithState")
        else "{title} probe errored: {error}",
        _disk_full(at),
    )


def _disk_full(at: Release) -> str:
    if kubelet_has(at, "InsufficientDiskText"):
        return (
            "Insufficient free disk space on the node's image filesystem ({usage}% of {capacity} "
            "used). Failed to free sufficient space by deleting unused images (freed {freed} "
            "bytes). Investigate disk usage, as it could be used by active images, logs, volumes, "
            "or other data."
        )
    if kubelet_has(at, "EligibleImageSpace"):
        return (
            "Failed to garbage collect required amount of images. Attempted to free {wanted} "
            "bytes, but only found {freed} bytes eligible to free."
        )
    return (
        "failed to garbage collect required amount of images. Wanted to free {wanted} bytes, but "
        "freed {freed} bytes"
    )


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
