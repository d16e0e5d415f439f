"""One file for each plugin; `registry.py` lists them, `default_plugins.py` the default profile."""
