"""Claims and volumes: binding, provisioning and reclaiming.

`matching.py` decides what matches, `binder.py` syncs claims and volumes, `provision.py` creates
volumes, `reclaim.py` deletes or recycles them; `cache.py` keeps written objects until the informers
show them.
"""

from transom.controllers.persistentvolume.binder import VolumeBinder

__all__ = ["VolumeBinder"]
