"""EndpointSlices: addresses behind services, in pieces.

- `controller.py`: those of services that select pods; `plan.py` packs them
- `mirroring.py`: those of services whose Endpoints people write themselves
- `common.py`: what both share
"""

from transom.controllers.endpointslice.controller import EndpointSlices
from transom.controllers.endpointslice.mirroring import EndpointSliceMirroring

__all__ = ["EndpointSliceMirroring", "EndpointSlices"]
