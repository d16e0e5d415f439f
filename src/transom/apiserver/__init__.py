"""The API server: HTTP, authentication, authorization, admission, the registry of resources, watch,
discovery.
"""
