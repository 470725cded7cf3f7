"""The paper's robots: environment, bins, shipped policies, logs, training."""
