"""Linux programs: the shell, its commands, and how scripts and commands are found."""
