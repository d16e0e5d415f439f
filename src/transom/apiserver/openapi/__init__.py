"""OpenAPI documents, which kubectl uses to explain, validate and merge."""
