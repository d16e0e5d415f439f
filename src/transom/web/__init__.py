"""The web console: pages rendered on the server, and small ES modules that keep them live."""
