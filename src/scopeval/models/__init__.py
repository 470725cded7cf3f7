"""From logs to estimates: what the logs say about every (observation, action) at one time step."""
