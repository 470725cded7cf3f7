"""Many independent computations whose answers are kept in files; `scopeval.workers` does them."""
