"""Several policies from the same episodes: which is better, and by how much."""
