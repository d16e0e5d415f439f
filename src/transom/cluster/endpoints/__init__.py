"""The API server's own endpoints below /transom, each authorized like any other non-resource path."""
