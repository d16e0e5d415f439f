"""The kernel data plane: what the stacks of a cluster have been told, made true in network namespaces of this machine.

All namespaces hang on one underlay bridge that lives in a namespace of its own; none has a link to the machine's network.
They are held by file descriptors alone, so the kernel takes everything away when the process ends, however it ends.
"""
