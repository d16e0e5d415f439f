"""Facts about priority levels that defaults, conversion and validation share."""

from __future__ import annotations

from typing import Final

# Annotates an object in v1beta3 whose zero shares are not to be replaced with the default.
PRESERVE_ZERO_SHARES: Final = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
DEFAULT_SHARES: Final = 30
