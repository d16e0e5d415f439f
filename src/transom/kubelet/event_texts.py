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

    def container_created(self, name: str) -> str:
        return self.created.format(name=name)

    def container_started(self, name: str) -> str:
        return self.started.format(name=name)

    def container_backs_off(self, name: str, pod: str) -> str:
        return self.back_off.format(name=name, pod=pod)

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
    )
