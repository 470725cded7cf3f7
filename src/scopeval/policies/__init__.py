"""Target policies: protocols, adapters for tables, functions and modules, Gaussian policies."""
