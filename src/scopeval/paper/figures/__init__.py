"""Figures of the experiments: results in, matplotlib figures out."""
