"""scopeval: know a policy's value for a fraction of the cost, and never more dangerously."""

__version__ = "0.1.0"
