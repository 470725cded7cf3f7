"""Episodes from the compiled simulator of finite MDPs, in batches, by either policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from scopeval.arrays import Floats
from scopeval.errors import InputError
from scopeval.evaluation.batches import Batch
from scopeval.exact import TabularMDP, assess, behavior_tables, policy_table
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import Policy
from scopeval.simulate import summaries

__all__ = ["Simulated"]


class Simulated:
    """Episodes of a `TabularMDP` by the compiled simulator; any finite policies, as tables.

    The simulator gives an estimate, a cost and a weighted cost per episode and no weight. Asked
    three times for the same episodes it gives all: the return is the estimate of mu's own value,
    and the weight is the PDIS estimate of a reward of 1 at the last step.
    """

    side_by_side, quick = 1, True

    def __init__(
        self,
        mdp: TabularMDP,
        target: Policy,
        behavior: Any,
        *,
        estimator: str,
        free: bool,
        seed: int,
    ) -> None:
        self._seed = seed
        self._on_policy = behavior is None
        pi, mu, b = _tables(mdp, target, behavior)
        if estimator == "dr" and b is None:
            raise InputError(
                "estimator: 'dr' needs a behavior policy with a control variate (method "
                "'scope-dr' or 'dopt'); try 'pdis'"
            )
        if estimator == "mc" and (np.abs(pi - mu) > 1e-9).any():
            raise InputError(
                "estimator: 'mc', plain returns, gives the target's value only where the target "
                "itself is run; try 'auto'"
            )
        self._whole = estimator == "is"
        self._control = b if estimator in ("auto", "dr") else None
        last = np.zeros((mdp.horizon, mdp.states, mdp.actions))
        last[-1] = 1.0
        self._mdp = mdp.without_cost() if free else mdp
        self._weigher = self._mdp.with_reward(last, gamma=1.0)
        self._pi, self._mu = TabularPolicy(pi), TabularPolicy(mu)
        self.uncovered = self._left_out()

    def _left_out(self) -> str | None:
        """The mean weight is the chance that an episode of pi is one that mu can have."""
        share = 1.0 - assess(self._weigher, self._pi, self._mu).expectation
        if share <= 1e-9:
            return None
        told = (
            f"the behavior policy never takes some actions that the target takes in {share:.3g} "
            "of its episodes"
        )
        bias = assess(self._mdp, self._pi, self._mu, self._control).bias
        scale = float(np.abs(self._mdp.reward).max()) * self._mdp.horizon
        if abs(bias) > 1e-9 * scale:
            return f"{told}; the estimate is biased by {bias:.3g}"
        return f"{told}; nothing is lost for the value, but the target's cost is underestimated"

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        target = self._on_policy or by_target
        mu = self._pi if target else self._mu
        how: dict[str, Any] = {"episodes": count, "seed": self._seed, "first": first}
        main = summaries(self._mdp, self._pi, mu, control_variate=self._control, **how)
        weigher = summaries(self._weigher, self._pi, mu, **how)
        plain = main if target and self._control is None else summaries(self._mdp, mu, **how)
        return Batch(
            value=weigher.estimate * plain.estimate if self._whole else main.estimate,
            returned=plain.estimate,
            weight=weigher.estimate,
            cost=main.cost,
            weighted_cost=main.weighted_cost,
            spent=weigher.cost,
            target_spent=weigher.weighted_cost,
            by_target=np.full(count, target),
            controlled=self._control is not None,
        )

    def close(self) -> None:
        """Nothing is open."""


def _tables(mdp: TabularMDP, target: Policy, behavior: Any) -> tuple[Floats, Floats, Floats | None]:
    """pi, mu and b [T, S, A] of any finite policies on a finite MDP."""
    pi = policy_table(mdp, "target", target)
    if behavior is None:
        return pi, pi, None
    return pi, *behavior_tables(mdp, pi, behavior)


def _holes(target: Any, behavior: Any) -> str | None:
    """Entries of tables that mu leaves out; whether they are ever reached is not known here."""
    if not (isinstance(target, TabularPolicy) and isinstance(behavior, TabularPolicy)):
        return None
    if (target.states, target.actions) != (behavior.states, behavior.actions):
        return None  # collection says what is wrong with them
    T = behavior.horizon or target.horizon or 1
    T = min(T, target.horizon or T)
    holes = (target.table(T) > 0) & (behavior.table(T) == 0)
    if not holes.any():
        return None
    return (
        f"the behavior policy's table is 0 at {int(holes.sum()):,} places where the target's is "
        "not; where those are reached, the target's cost is underestimated, and the value too "
        "unless the behavior was designed so"
    )
