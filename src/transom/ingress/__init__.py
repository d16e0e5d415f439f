"""The ingress controller: serves Ingress objects, and HTTPRoutes where the Gateway API is installed,
on ports of this machine.
"""
