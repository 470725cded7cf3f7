"""Benchmarks: ours against a peer in one process, as a ratio, so that the machine cancels."""
