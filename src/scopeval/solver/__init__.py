"""The program of every step, for a batch of rows. It knows no reinforcement learning."""

from scopeval.solver.program import Solution, Status, solve, solve_priced

__all__ = ["Solution", "Status", "solve", "solve_priced"]
