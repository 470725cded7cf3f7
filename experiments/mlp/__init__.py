"""Critics by small networks, the paper's own choice: one per critic, fold and time step."""
