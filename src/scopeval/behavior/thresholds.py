"""Every number that decides what is run; docs/safety.md lists them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["THRESHOLDS", "Thresholds"]


@dataclass(frozen=True)
class Thresholds:
    """Every number that decides what is run.

    Attributes:
        floors: shares of the target policy that the cross-check chooses among, from the setting on.
        cost_excess: checked cost beyond what is allowed, relative to the target's, up to which a
            design is used; less is left unspent as a margin.
        cost_doubt: the predicted cost and the doubt about it (`unseen_cost`) together may be this
            much beyond what is allowed; else the design falls back.
        least_support: share of the target policy's steps that the logs must show; else fall back.
        least_vector_support: the same for vectors, where nearness decides (`support`).
        first_look_support: the same in a first look, which ends clear cases only (`first_look`);
        first_look_promise: relative variance that its own critics must promise; else fall back.
        control_variate_support: the same as `least_support` for a control variate; else b = 0.
        control_variate_variance: checked relative variance below which a control variate is used.
        agreement: checked variance, relative to predicted, up to which a prediction is believed; a
            control variate with `Caution.trust` or more must agree that well.
        believed_error: disagreement of the halves' reward critics up to which a design's own
            prediction of its variance is told, and from which on the checked one is.
        largest_margin: of the cost budget that is left unspent at most.
        episode_excess: predicted cost, relative to what is allowed, up to which one budget for
            whole episodes is used; else every state has its own.
        noted_support: support below which a warning is given.
        noted_infeasible: share of logged states without an affordable answer that is noted.
    """

    floors: tuple[float, ...] = (0.02, 0.25, 0.5, 0.75)
    cost_excess: float = 0.02
    cost_doubt: float = 0.005
    least_support: float = 0.25
    least_vector_support: float = 0.5
    first_look_support: float = 0.35
    first_look_promise: float = 0.95
    control_variate_support: float = 0.5
    control_variate_variance: float = 0.9
    agreement: float = 1.08
    believed_error: tuple[float, float] = (0.5, 1.0)
    largest_margin: float = 0.5
    episode_excess: float = 1.001
    noted_support: float = 0.9
    noted_infeasible: float = 0.01


THRESHOLDS = Thresholds()
