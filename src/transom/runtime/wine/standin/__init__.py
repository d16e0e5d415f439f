"""Our own implementations of Windows programs that are not available for Wine: PowerShell above
all, findstr, timeout and the like.

A stand-in has two halves in one container. The Win32 one (`native/standin.c`, under the name of
each program) has the console, the standard handles and real child processes. The other one is a
Unix process in the container's own namespaces, with its user, its limits and its network: it runs
the programs of `userland/` on the real container instead of a simulated one. The kernel enforces
its permissions, it ends with its container, and it does not need a running Transom process.

The Unix half runs without site-packages: it may import only the standard library.
"""
