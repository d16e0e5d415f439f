"""Claims and volumes: bound to each other, made on demand, given back when a claim is gone.

`matching.py` says what fits, `binder.py` decides for each claim and each volume, `provision.py` makes volumes,
`reclaim.py` deletes or recycles them; `cache.py` keeps what was written until the informers show it.
"""

from transom.controllers.persistentvolume.binder import VolumeBinder

__all__ = ["VolumeBinder"]
