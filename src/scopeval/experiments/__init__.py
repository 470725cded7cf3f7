"""The paper's experiments, one file per domain."""
