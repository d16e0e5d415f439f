"""The attach/detach controller: attaches volumes to the nodes of the pods that use them, and
detaches them afterwards.
"""

from transom.controllers.attachdetach.controller import AttachDetach

__all__ = ["AttachDetach"]
