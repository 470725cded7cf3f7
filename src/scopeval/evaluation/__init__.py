"""The whole flow: run a behavior policy, and report what the target policy is worth."""
