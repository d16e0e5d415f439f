"""EndpointSlices: the addresses of services, in slices of limited size.

- `controller.py`: slices of services with a selector; `plan.py` packs them
- `mirroring.py`: slices of services with manually managed Endpoints
- `common.py`: what both share
"""

from transom.controllers.endpointslice.controller import EndpointSlices
from transom.controllers.endpointslice.mirroring import EndpointSliceMirroring

__all__ = ["EndpointSliceMirroring", "EndpointSlices"]
