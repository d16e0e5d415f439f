"""Linux containers as processes of this machine, run by runc."""
