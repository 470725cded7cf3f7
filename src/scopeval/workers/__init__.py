"""Workers: processes on this machine, or actors of a Ray cluster, that do jobs one at a time."""
