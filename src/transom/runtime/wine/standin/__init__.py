"""Programs of Windows that cannot be had for Wine, done by our own: PowerShell first of all, findstr, timeout and their like.

A stand-in has two halves in one container. The Win32 one (`native/standin.c`, under the name of each program) has the
console, the standard handles and real child processes. The other one is a Unix process in the container's own namespaces,
with its user, its limits and its network: the programs of `runtime/sim/programs`, over what is really there instead of
what is simulated. The kernel says what it may do, it ends with its container, and Transom itself may be gone meanwhile.

The Unix half runs without site-packages: nothing outside the standard library may be imported on its way.
"""
