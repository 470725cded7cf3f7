"""What every model of one's own must do: conditional means, noise, honesty; wrong ones are noticed.

The world is linear in the observation, so that a ridge regression and least squares are right in
it. Standard errors over 4,000 rows are below .05; the tolerance of .25 is five of them and more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scopeval import Transitions
from scopeval.models.protocols import Estimates, Regression, Targets
from scopeval.models.rows import Rows
from scopeval.models.supervised import SupervisedRegression
from test_examples import example

N, A, NOISE = 4000, 3, 0.5
RIDGE = example("own_model")


class LeastSquares:
    """With ``fit`` and ``predict``: a line for each action."""

    def fit(self, inputs, y):
        self.line = np.linalg.lstsq(self.crossed(inputs), y, rcond=None)[0]

    def predict(self, inputs):
        return self.crossed(inputs) @ self.line

    @staticmethod
    def crossed(inputs):
        return np.column_stack([inputs[:, -A:], inputs[:, :1] * inputs[:, -A:]])


def truth(x):
    """The means [n, A] of reward, cost, cost of a behavior policy, and of its variance to come."""
    action = np.arange(A)
    z = x[:, None]
    return z * action + 1.0, 2.0 + 0.3 * z + action, 3.0 - 0.2 * z + action, 1.0 + 0.1 * z * action


def logged(seed=0):
    """Rows at observations in -1 .. 1, and their targets."""
    rng = np.random.default_rng(seed)
    x, action = rng.uniform(-1.0, 1.0, N), rng.integers(A, size=N)
    columns = [mean[np.arange(N), action] for mean in truth(x)]
    reward, *others = columns[0] + NOISE * rng.normal(size=N), *columns[1:]
    log = Transitions(
        np.zeros(N, int), x[:, None], action, reward, np.ones(N), rng.normal(size=(N, 1))
    )
    cost, behavior, carried = (one + 0.1 * rng.normal(size=N) for one in others)
    targets = Targets(reward, cost, behavior[:, None], carried[:, None], np.zeros(N))
    return Rows.of(log), targets


def check(regression: Regression) -> None:
    """Raise where a model is not what a design takes it for."""
    rows, targets = logged()
    prepared = regression.prepare(rows, A)
    critic = regression.learner(prepared, A, 0).fit(targets)
    x = np.linspace(-0.9, 0.9, 7)[:, None]
    e = critic.at(x)
    for name, many in (("q", ()), ("noise", ()), ("cost_behavior", (1,)), ("carried", (1,))):
        assert getattr(e, name).shape == (7, A, *many), name
    q, cost, behavior, carried = truth(x[:, 0])
    for got, expected in (
        (e.q, q), (e.cost_target, cost), (e.cost_behavior[..., 0], behavior),
        (e.carried[..., 0], carried),
    ):  # fmt: skip
        np.testing.assert_allclose(got, expected, atol=0.25)
    # X needs the variance of the outcome, and the error of q beside it
    assert (e.error >= 0).all()
    assert (e.noise >= e.error).all()
    np.testing.assert_allclose(e.noise - e.error, NOISE**2, rtol=0.35)
    # observations do not look at each other, and what was never logged is not known
    np.testing.assert_allclose(critic.at(x[[5, 2]]).q, e.q[[5, 2]], rtol=1e-9)
    assert e.known.all()
    assert not critic.at(np.array([[9.0]])).known.any()
    kept = rows.action != 2
    fewer = Targets(*(getattr(targets, name)[kept] for name in targets.__dataclass_fields__))
    e = regression.learner(rows.select(kept), A, 0).fit(fewer).at(x)
    assert np.isfinite(e.q).all()
    assert (e.known == [True, True, False]).all()


@pytest.mark.parametrize(
    "regression", [RIDGE.Ridge(), SupervisedRegression(LeastSquares)], ids=lambda one: one.name
)
def test_right_models_conform(regression):
    check(regression)


def changed(critic, **how):
    """A critic whose answers are changed."""

    class Changed:
        def at(self, obs, actions=None) -> Estimates:
            e = critic.at(obs, actions)
            return replace(e, **{name: change(e) for name, change in how.items()})

    return Changed()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("costs exchanged", {"cost_target": lambda e: e.cost_behavior[..., 0]}),
        ("noise is a standard deviation", {"noise": lambda e: np.sqrt(e.noise)}),
        ("noise without the error of q", {"noise": lambda e: 0.0 * e.noise}),
        ("the variance to come is forgotten", {"carried": lambda e: 0.0 * e.carried}),
        ("one value for all actions", {"q": lambda e: 0.0 * e.q + e.q.mean(1, keepdims=True)}),
        ("everything is known", {"known": lambda e: e.known | True}),
        ("observations look at each other", {"q": lambda e: e.q + e.q.mean(0) - e.q.mean()}),
    ],
)
def test_wrong_models_do_not(name, wrong):
    class Wrong(RIDGE.Ridge):
        def learner(self, rows, actions, seed):
            right = super().learner(rows, actions, seed)

            class Learner:
                def fit(self, targets):
                    return changed(right.fit(targets), **wrong)

            return Learner()

    with pytest.raises(AssertionError):
        check(Wrong())
