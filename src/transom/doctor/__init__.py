"""What is wrong with a cluster and what to do about it, and what a report of a bug has to say. Reads, and changes nothing."""
