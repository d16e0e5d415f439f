"""Images for real containers: names, registries, archives, layers, and a store on disk that all nodes of a machine share."""
