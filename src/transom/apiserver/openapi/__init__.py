"""OpenAPI: what kubectl explains, validates and merges with."""
