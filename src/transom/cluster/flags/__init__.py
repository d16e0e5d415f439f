"""The command lines of a node's programs, read as the programs read them. Pure: nothing here starts anything."""
