"""From the command of a container to a program: which programs an image has, and how they start."""
