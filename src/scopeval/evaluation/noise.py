"""Where the variance of an estimate comes from, and which lever would take more of it out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from scopeval.arrays import Floats
from scopeval.context.features import LEVELS, BlockMeans
from scopeval.context.regression import learn_guesses
from scopeval.evaluation.batches import Batch

__all__ = ["Noise", "NoiseMeter"]

#: Episodes that advice is from: at least, so that it is no chance; at most, which is enough.
FEWEST, MOST = 100, 2000
#: Share of the variance that a lever must take out to be worth a sentence: half of the episodes.
WORTH = 0.5
#: A share of the variance that is not worth a lever of its own.
_LITTLE = 0.1


@dataclass(frozen=True)
class Noise:
    """The variance of one return of the policy, or of an A/B test, by what has become of it.

    Attributes:
        design: share that the behavior policy and its critics took out; below 0: they added some.
        context: share that exogenous paths took out.
        left: share that is left.
        of: whose variance it is, in words.
        by: what the first share is by, in words.
    """

    design: float
    context: float
    left: float
    of: str = "a return's variance"
    by: str = "the design and its critics"

    @property
    def sentence(self) -> str:
        """In words, with a bar of 20 signs: d for design, c for context, a dot for what is left."""
        parts = []
        if abs(self.design) >= 0.005:
            done = "taken out" if self.design > 0 else "added"
            parts.append(f"{100 * abs(self.design):.0f}% {done} by {self.by}")
        parts.append(f"{100 * self.context:.0f}% by context")
        parts.append(f"{100 * self.left:.0f}% left")
        d = round(20 * min(max(self.design, 0.0), 1.0))
        c = min(round(20 * max(self.context, 0.0)), 20 - d)
        return f"[{'d' * d}{'c' * c}{'.' * (20 - d - c)}] of {self.of}: " + ", ".join(parts)

    @property
    def lever(self) -> str:
        """What is worth trying next, in words."""
        if self.left <= _LITTLE:
            return "Little is left: the next episodes are worth what the first ones are."
        if self.context < _LITTLE and self.design < _LITTLE:
            return (
                "Neither helps here: what is left is neither the policy's own draws nor the "
                "context's, and only more episodes help."
            )
        return "Only more episodes, or a longer and wider history, take out what is left."


@dataclass
class NoiseMeter:
    """Collects what advice is from, while an evaluation without context runs.

    Attributes:
        columns: numbers of columns of the observation that the plant calls exogenous.
    """

    columns: tuple[int, ...] = ()
    _starts: list[Floats] = field(default_factory=list)
    _paths: list[Floats] = field(default_factory=list)
    _values: list[Floats] = field(default_factory=list)
    _names: tuple[int, ...] | tuple[str, ...] = ()
    _count: int = 0

    def add(self, batch: Batch) -> None:
        """Take in a batch that has its episodes."""
        episodes = batch.episodes
        if episodes is None or not len(episodes) or episodes.obs.ndim != 3 or self._count >= MOST:
            return
        self._count += len(episodes)
        self._starts.append(episodes.obs[:, :1])
        self._values.append(batch.value)
        if episodes.exogenous is not None:
            self._names = episodes.signals
            self._paths.append(episodes.exogenous[:, 1:])
        elif self.columns and (episodes.length == episodes.horizon).all():
            self._names = self.columns
            self._paths.append(episodes.obs[:, :, list(self.columns)])

    @property
    def advice(self) -> tuple[str, ...]:
        """What would take out most of the variance, in words; nothing: nothing is known to."""
        if self._count < FEWEST:
            return ()
        values = np.concatenate(self._values)
        advice = []
        explained = _explained(np.concatenate(self._starts), values)
        if explained >= WORTH:
            advice.append(
                f"{100 * explained:.0f}% of the variance is decided where an episode starts: "
                "context=History.starts(2000) would need about "
                f"{1 - explained:.2g} times as many episodes"
            )
        paths = np.concatenate(self._paths) if self._paths else np.zeros((0, 1, 1))
        if len(paths) == len(values) and np.isfinite(paths).all():
            explained = _explained(paths, values)
            if explained >= WORTH:
                names = " and ".join(
                    name if isinstance(name, str) else f"column {name} of the observation"
                    for name in self._names
                )
                advice.append(
                    f"{100 * explained:.0f}% of the variance goes with {names}: if no action "
                    f"changes that, context=History(paths, {self._names!r}) with paths of past "
                    f"operation would need about {1 - explained:.2g} times as many episodes"
                )
        return tuple(advice)


def _explained(paths: Floats, values: Floats) -> float:
    """Share of the variance that held-out predictions from paths take out."""
    n = min(len(values), MOST)
    return 1.0 - float(learn_guesses(BlockMeans(paths[:n]), values[:n, None], LEVELS).kept[0])
