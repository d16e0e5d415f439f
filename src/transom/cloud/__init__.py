"""The emulated cloud: disks and file shares that exist outside of the nodes."""
