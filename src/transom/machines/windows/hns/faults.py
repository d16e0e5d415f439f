"""Injected faults of a host networking service; off by default."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.machines.windows.hns.errors import ACCESS_DENIED, TEXTS, UNSPECIFIED, HnsError

SWITCHES: Final = (
    "keep_remote_endpoints",
    "late_management_address",
    "leak_endpoints",
    "lose_balancers_on_restart",
    "lose_networks_on_reboot",
    "lose_networks_on_restart",
    "refuse_deletes",
)


@dataclass(slots=True)
class HnsFaults:
    keep_remote_endpoints: bool = False  # a delete of a remote endpoint reports success only
    late_management_address: bool = False  # networks do not report the host's address on them
    leak_endpoints: bool = False  # a delete reports success, but the endpoint and its address stay
    lose_balancers_on_restart: bool = False  # of the service
    lose_networks_on_reboot: bool = False  # persistent ones too
    lose_networks_on_restart: bool = False  # of the service
    refuse_deletes: str = ""  # the error text of every delete
    queued: list[tuple[str, int, str]] = field(default_factory=list)

    def fail_next(self, call: str, code: int, text: str = "") -> None:
        """The next such call fails once: "CreateEndpoint", "DeleteLoadBalancer", "ModifyNetwork",
        "Attach".
        """
        self.queued.append((call.removeprefix("hcn"), code, text))

    def check(self, call: str) -> None:
        for at, (name, code, text) in enumerate(self.queued):
            if name == call:
                del self.queued[at]
                raise HnsError(code, text)
        if self.refuse_deletes and call.startswith("Delete"):
            known = next((code for code, text in TEXTS.items() if text == self.refuse_deletes), 0)
            raise HnsError(known) if known else HnsError(UNSPECIFIED, self.refuse_deletes)

    def switch(self, name: str, on: bool) -> None:
        """For callers that only have names. Raises KeyError if it is not in SWITCHES."""
        name = name.replace("-", "_")
        if name not in SWITCHES:
            raise KeyError(name)
        setattr(
            self, name, (TEXTS[ACCESS_DENIED] if on else "") if name == "refuse_deletes" else on
        )

    def shown(self) -> dict[str, bool]:
        return {name.replace("_", "-"): bool(getattr(self, name)) for name in SWITCHES}
