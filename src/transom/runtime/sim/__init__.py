"""A container runtime that runs nothing: containers live, log, listen and die as real ones would."""
