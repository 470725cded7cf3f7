"""Behavior policies and critics' estimates that several test files need."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe
from scopeval.behavior.summary import Prediction, Report
from scopeval.models.protocols import Estimates

RECIPE = Recipe(METHODS["scope"], 3)
REPORT = Report(10, "table", 1.0, 0.0, 0.0, Prediction(0.5, 1.0, 0.6, 1.0), {})


def estimates(q, cost=None, noise=None, carried=None, known=None, cost_target=None):
    """Estimates of one followed behavior beside the target."""
    q = np.asarray(q, float)
    cost = np.ones_like(q) if cost is None else np.asarray(cost, float)
    cost_target = cost if cost_target is None else np.asarray(cost_target, float)
    carried = np.zeros_like(q) if carried is None else np.asarray(carried, float)
    return Estimates(
        q=q,
        cost_target=cost_target,
        cost_behavior=np.stack([cost_target, cost], axis=-1),
        carried=np.stack([carried, carried], axis=-1),
        noise=np.zeros_like(q) if noise is None else np.asarray(noise, float),
        error=np.zeros_like(q),
        known=np.ones(q.shape, bool) if known is None else np.asarray(known),
    )


EXTREME = st.one_of(
    st.sampled_from(
        [0.0, -0.0, 1.0, -1.0, 1e-300, -1e-300, 5e-324, 1e300, -1e300, 1.7e308, -1.7e308]
    ),
    st.sampled_from([np.nan, np.inf, -np.inf, 1e150, 1e151, 1e-160, 1e77, 0.3, 0.7]),
    st.floats(-10.0, 10.0),
    st.floats(width=64),
)


@st.composite
def anything(draw):
    """Estimates of two rows and three actions: finite or not, of any sign and size."""
    shape = (2, 3)

    def numbers():
        return draw(arrays(np.float64, shape, elements=EXTREME))

    e = estimates(
        numbers(),
        cost=numbers(),
        noise=numbers(),
        carried=numbers(),
        cost_target=numbers(),
        known=draw(arrays(np.bool_, shape)),
    )
    odd = draw(arrays(np.float64, shape, elements=st.sampled_from([0.0, 1e-310, 1e-200, 1.0, 2.0])))
    odd[odd.sum(axis=1) < 1e-3, 0] = 1.0
    recipe = replace(
        RECIPE,
        method=replace(
            METHODS[draw(st.sampled_from(list(METHODS)))],
            constraint=draw(st.sampled_from(["behavior", "target"])),
        ),
        floor=draw(st.sampled_from([0.0, 0.02, 0.5, 1.0])),
        epsilon=draw(st.sampled_from([0.0, 0.1, 1e300])),
        margin=draw(st.sampled_from([0.0, 0.01, 0.5])),
        limit=draw(st.sampled_from([None, None, 0.0, 1.0, 1e-300, 1.7e308])),
        budget=draw(st.sampled_from(["state", "episode"])),
        price=draw(st.sampled_from([0.0, 1e-300, 1.0, 1e12, 1.7e308])),
    )
    return e, odd / odd.sum(axis=1, keepdims=True), recipe


def vector_target(obs, t):
    p = np.exp(np.stack([obs[:, 0], obs[:, 1], 0 * obs[:, 0]], axis=1).clip(-3, 3))
    return p / p.sum(axis=1, keepdims=True)
