"""Algorithm 1 and what it makes: methods, step, sweep, cross-check, decision, behavior policy."""
