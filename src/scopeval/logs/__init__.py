"""Logs in: transitions, column names and checks, readers, Parquet, episodes, inferred fields."""
