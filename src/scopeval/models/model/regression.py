"""Critics by a model of the world: the default for observations that are vectors."""

from __future__ import annotations

from dataclasses import dataclass, field

from scopeval.models.model.network import Dynamics
from scopeval.models.model.return_features import Study
from scopeval.models.model.simulator import Simulator
from scopeval.models.model.training import Training
from scopeval.models.protocols import Caution

__all__ = ["Networks"]


@dataclass(frozen=True)
class Networks:
    """Learn a model of the world by networks; see `models.model.critic` for the method.

    Attributes:
        training: of the networks; of several ways, the one with the least held-out error is used.
        paths: episodes simulated in each network.
        study: how the return features are learned.
        ridge: penalty, relative to the number of rows.
        caution: where small errors grow fast, critics that are unbiased on average still overstate
            the differences between actions, so smaller shares of them are tried. On the other hand
            the cross-check is in a world that is as uncertain as the logs show, and is trusted.
        first_look: whether models are first trained for a moment, and in full only if these leave
            something to gain.
        simulates_costs: whether the cost of a design is taken from simulated episodes of the
            behavior policy, and kept within its budget there; else it is the critics' own.
        dynamics: a simulator (`Simulator`), or the `Dynamics` of an earlier design; None: they
            are learned from the logs.
        time_varying: whether rewards or dynamics depend on t beyond the observation. If not, every
            logged row serves every time step.
    """

    training: Training | tuple[Training, ...] = field(default_factory=Training)
    paths: int = 600
    study: Study = field(default_factory=Study)
    ridge: float = 3e-2
    caution: Caution = field(
        default_factory=lambda: Caution((0.35, 0.65, 1.0), 0.95, 0.01, (1.0, 1.0))
    )
    first_look: bool = True
    simulates_costs: bool = True
    dynamics: Dynamics | Simulator | None = None
    time_varying: bool = False
    name: str = "model"

    @property
    def trainings(self) -> tuple[Training, ...]:
        """All that are tried."""
        return (self.training,) if isinstance(self.training, Training) else tuple(self.training)
