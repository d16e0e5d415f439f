"""The kernel data plane: implements the stacks of a cluster in network namespaces of this machine.

All namespaces are attached to one underlay bridge in a namespace of its own; none has a link to the
machine's network. Only file descriptors keep them alive, so the kernel removes everything when the
process ends, for whatever reason.
"""
