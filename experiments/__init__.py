"""Experiments: one file each, ``python -m experiments.NAME --quick``; not part of the package."""
