"""One file for each plugin; `table.py` says which there are and in which order they act."""
