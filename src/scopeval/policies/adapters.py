"""Target policies from tables, functions, torch modules and models of Stable-Baselines3."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopeval.arrays import Floats, Ints, check_probs, check_whole, is_number, takes
from scopeval.errors import InputError

if TYPE_CHECKING:
    import torch

from scopeval.policies.gaussian import GaussianPolicy
from scopeval.policies.protocols import (
    Behavior,
    ContinuousPolicy,
    LearnedBehavior,
    Observations,
    Policy,
    Time,
)

__all__ = [
    "CallablePolicy",
    "TabularPolicy",
    "TorchPolicy",
    "as_behavior",
    "as_policy",
    "deterministic",
    "is_sb3",
    "sb3_policy",
]


class TabularPolicy:
    """A policy given by a table: ``probs`` [S, A], or [T, S, A] when it depends on time.

    Observations are state numbers. Rows must be distributions; they are normalized to rounding.
    """

    def __init__(self, probs: ArrayLike) -> None:
        array = np.asarray(probs)
        if array.ndim not in (2, 3):
            raise InputError(
                f"policy: got a table of shape {array.shape}, expected [S, A] or [T, S, A]"
            )
        axes = ("s",) if array.ndim == 2 else ("t", "s")
        self._table = check_probs("policy", array, axes=axes)
        self._table.setflags(write=False)

    @property
    def states(self) -> int:
        """Number of states S."""
        return int(self._table.shape[-2])

    @property
    def actions(self) -> int:
        """Number of actions A."""
        return int(self._table.shape[-1])

    @property
    def horizon(self) -> int | None:
        """Number of time steps the table covers, None when it does not depend on time."""
        return int(self._table.shape[0]) if self._table.ndim == 3 else None

    def table(self, horizon: int) -> Floats:
        """The table as [horizon, S, A] (a view, not a copy)."""
        if self._table.ndim == 2:
            return np.broadcast_to(self._table, (horizon, *self._table.shape))
        if self._table.shape[0] < horizon:
            raise InputError(
                f"policy: the table covers {self._table.shape[0]} time steps, expected at least "
                f"the horizon {horizon}"
            )
        return self._table[:horizon]

    def probs(self, obs: Observations, t: Time) -> Floats:
        """Probabilities [B, A] at state numbers [B]."""
        states = self._states(obs)
        if self._table.ndim == 2:
            return self._table[states]
        times = np.asarray(t)
        outside = (times < 0) | (times >= len(self._table))
        if outside.any():
            raise InputError(
                f"policy: asked at time {times[outside][0]}, the table covers "
                f"0..{len(self._table) - 1}"
            )
        return np.asarray(self._table[times, states])

    def _states(self, obs: Observations) -> Ints:
        states = np.asarray(obs)
        if states.ndim != 1 or states.dtype.kind not in "iu":
            raise InputError(
                f"policy: a tabular policy needs state numbers [B], got {states.dtype} "
                f"{states.shape}"
            )
        if len(states) == 1:
            inside = 0 <= states.item() < self.states
        else:
            inside = not states.size or bool(states.min() >= 0 and states.max() < self.states)
        if not inside:
            worst = states[(states < 0) | (states >= self.states)][0]
            raise InputError(f"policy: state {worst} is outside 0..{self.states - 1}")
        return states.astype(np.int64, copy=False)

    def __repr__(self) -> str:
        return f"TabularPolicy(shape={self._table.shape})"


class CallablePolicy:
    """Any function ``f(obs, t)`` that returns probabilities [B, A]; every answer is checked."""

    def __init__(self, function: Callable[[Observations, Time], ArrayLike]) -> None:
        if not callable(function):
            raise InputError(f"policy: {function!r} is not callable")
        if not takes(function, 2, unknown=True):
            raise InputError(
                f"policy: {self._name(function)} does not take (obs, t), expected a function of "
                "observations [B] or [B, d] and the time step that returns probabilities [B, A]; "
                "try lambda obs, t: f(obs), or, where f takes one observation at a time, "
                "lambda obs, t: [f(o) for o in obs]"
            )
        self._function = function

    def probs(self, obs: Observations, t: Time) -> Floats:
        """Probabilities [B, A]."""
        answer = np.asarray(self._function(obs, t))
        if answer.shape in ((len(obs),), ()) and answer.dtype.kind in "iu":
            got = (
                f"{len(obs)} whole numbers, which look like actions"
                if answer.ndim
                else f"{answer}, which looks like an action"
            )
            raise InputError(
                f"policy: {self._name(self._function)} returned {got}, expected the probabilities "
                "of all actions [B, A]; of a policy that always takes action f(obs) these are "
                "np.eye(A)[f(obs)]; of one that is asked for one observation at a time try "
                "deterministic(f, actions=A)"
            )
        return _checked("policy", answer, len(obs))

    @staticmethod
    def _name(function: object) -> str:
        return str(getattr(function, "__qualname__", repr(function)))

    def __repr__(self) -> str:
        return f"CallablePolicy({getattr(self._function, '__qualname__', self._function)!r})"


class TorchPolicy:
    """A torch module that maps observations to logits [B, A].

    Args:
        module: called as ``module(obs)``, or ``module(obs, t)`` with ``with_time=True``; obs
            arrives as float32 [B, d] (discrete observations as int64 [B]), t as int64 [B].
        with_time: whether the module also takes the time step.

    The module is put into evaluation mode and never trained; the softmax is taken in float64.
    """

    def __init__(self, module: torch.nn.Module, *, with_time: bool = False) -> None:
        self.module = module.eval()
        self.with_time = with_time
        self._asked = False

    def logits(self, obs: Observations, t: Time) -> torch.Tensor:
        """The module's own output, with gradients (ROS differentiates it)."""
        import torch

        inputs = np.asarray(obs)
        kind = np.int64 if inputs.dtype.kind in "iu" else np.float32
        tensor = torch.from_numpy(np.array(inputs, kind))  # a copy: logs are read-only
        more: tuple[torch.Tensor, ...] = ()
        if self.with_time:
            more = (torch.as_tensor(np.broadcast_to(np.asarray(t), (len(inputs),)).copy()),)
        try:
            out: object = self.module(tensor, *more)
        except RuntimeError as error:
            raise InputError(
                f"policy: the torch module cannot take observations of shape {inputs.shape} "
                f"({str(error).splitlines()[0]:.200}); expected a module of observations as the "
                "logs and the environment have them"
            ) from error
        if not isinstance(out, torch.Tensor) or out.ndim != 2 or len(out) != len(inputs):
            raise InputError(
                f"policy: the torch module returned {_described(out)} for {len(inputs)} "
                "observations, expected logits of shape [B, A]; try a function (obs, t) that "
                "returns probabilities"
            )
        return out

    def probs(self, obs: Observations, t: Time) -> Floats:
        """Softmax of the module's logits, [B, A]."""
        import torch

        with torch.inference_mode():
            logits = self.logits(obs, t)
            if not (logits.is_cpu and logits.is_contiguous()):
                logits = logits.cpu().contiguous()
        if not self._asked:
            _refuse_probabilities(logits.numpy())
            self._asked = True
        scores = logits.numpy().astype(np.float64)
        with np.errstate(invalid="ignore"):  # `_checked` says what is wrong
            odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return _checked("policy (torch module)", odds / odds.sum(axis=1, keepdims=True), len(obs))

    def __reduce__(self) -> tuple[Any, ...]:
        """TorchScript cannot be pickled, but it can be sent to workers in its own format."""
        import torch

        if not isinstance(self.module, torch.jit.ScriptModule):
            return _with_module, (self.module, self.with_time)
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.save(self.module, buffer)
        return _with_script, (buffer.getvalue(), self.with_time)

    def __repr__(self) -> str:
        return f"TorchPolicy({type(self.module).__name__})"


def _refuse_probabilities(logits: NDArray[Any]) -> None:
    """Logits that are distributions themselves come from a module that ends in a softmax."""
    several = logits.ndim == 2 and logits.shape[1] > 1
    if several and (logits >= 0).all() and np.abs(logits.sum(axis=1) - 1.0).max() <= 1e-5:
        raise InputError(
            "policy: the outputs of the torch module are probabilities (none is negative, and they "
            "sum to 1), expected logits, of which a softmax is taken; try the module without its "
            "softmax, or a function (obs, t) that returns the probabilities"
        )


def _described(out: object) -> str:
    """What a module returned instead of logits, for the message."""
    if hasattr(out, "shape"):
        return f"shape {tuple(out.shape)}"
    actor_critic = " (is it an actor-critic?)" if isinstance(out, tuple) else ""
    return f"a {type(out).__name__}{actor_critic}"


def _with_module(module: torch.nn.Module, with_time: bool) -> TorchPolicy:
    return TorchPolicy(module, with_time=with_time)


def _with_script(saved: bytes, with_time: bool) -> TorchPolicy:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.load(io.BytesIO(saved))  # type: ignore[no-untyped-call]
    return TorchPolicy(module, with_time=with_time)


def deterministic(
    function: Callable[[Any, int], ArrayLike] | Callable[[Any], ArrayLike], actions: int
) -> CallablePolicy:
    """A controller that always takes the same action at the same observation, as a policy.

        old = deterministic(lambda obs, t: 2 if obs[0] > 21.0 else 0, actions=3)
        result = evaluate(env, policy, behavior, episodes=1000, baseline=old)

    Args:
        function: ``f(obs, t)``, or ``f(obs)``, of one observation: the number of its action.
        actions: how many actions there are.
    """
    actions = check_whole("actions", actions, 1)
    if not callable(function):
        raise InputError(
            f"function: got {type(function).__name__}, expected a function (obs, t) -> action"
        )
    timed = takes(function, 2, unknown=False)

    def probs(obs: Observations, t: Time) -> Floats:
        rows = np.asarray(obs)
        times = np.broadcast_to(np.asarray(t), (len(rows),))
        every = np.zeros((len(rows), actions))
        for i, (row, now) in enumerate(zip(rows, times, strict=True)):
            answer = function(row, int(now)) if timed else function(row)  # type: ignore[call-arg]
            action = np.asarray(answer)
            whole = action.ndim == 0 and action.dtype.kind in "iub"
            if not whole or not 0 <= int(action) < actions:
                raise InputError(
                    f"policy: {getattr(function, '__name__', 'the controller')} answered "
                    f"{answer!r:.40} at t={int(now)}, expected the number of an action in "
                    f"0..{actions - 1}"
                )
            every[i, int(action)] = 1.0
        return every

    return CallablePolicy(probs)


# -- Stable-Baselines3 -----------------------------------------------------------------------------
#
# By what its models have; the library itself is not imported. A model is asked for the distribution
# that it draws from in training: probabilities of numbered actions, or a normal distribution that
# is clipped to the action space. Action values (DQN) become the greedy policy, with a share of
# exploration if one is stated.


def is_sb3(source: object) -> bool:
    """Whether this is a model, or the policy of a model, of Stable-Baselines3."""
    return any(
        base.__module__.partition(".")[0] in ("stable_baselines3", "sb3_contrib")
        for base in type(source).__mro__
    )


def sb3_policy(model: Any, *, explore: float = 0.0, draws: int = 10) -> Policy | ContinuousPolicy:
    """The policy of a model of Stable-Baselines3.

    Args:
        model: PPO, A2C or another actor-critic over numbered actions or a box; DQN. Or its
            ``policy``. Observations must be as the model saw them: for a model that was trained
            behind `VecNormalize`, wrap the environment likewise.
        explore: share of the time in which DQN takes an action at random.
        draws: candidates of a continuous policy (see `GaussianPolicy`).

    Raises:
        InputError: no such policy, or one whose probabilities are not known.
    """
    network = getattr(model, "policy", model)
    if not (is_number(explore) and 0.0 <= explore <= 1.0):
        raise InputError(f"explore: got {explore!r}, expected a share between 0 and 1")
    space = getattr(network, "action_space", None)
    actions = getattr(space, "n", None)
    if hasattr(network, "q_net") and isinstance(actions, int | np.integer):
        return CallablePolicy(_Network(network, int(actions), float(explore)).greedy)
    if explore:
        raise InputError(f"explore: got {explore!r}, but only DQN explores; leave it out")
    if not hasattr(network, "get_distribution"):
        raise InputError(
            f"policy: got {type(model).__name__}, whose probabilities of actions are not known; "
            "expected PPO, A2C or DQN; try a function (obs, t) that returns probabilities, or "
            "GaussianPolicy(mean, log_std, space=env.action_space)"
        )
    if isinstance(actions, int | np.integer):
        return CallablePolicy(_Network(network).softmax)
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    usual = type(getattr(network, "action_dist", None)).__name__ == "DiagGaussianDistribution"
    if low is None or high is None or np.ndim(low) != 1 or not usual:
        raise InputError(
            f"policy: got {type(model).__name__} over {space}, expected numbered actions, or a box "
            "with a plain normal distribution (use_sde=False, no squashing)"
        )
    gaussian = _Network(network)
    return GaussianPolicy(gaussian.mean, gaussian.log_std, space=space, draws=draws)


class _Network:
    """Asks a network of Stable-Baselines3 without gradients, in evaluation mode."""

    def __init__(self, network: Any, actions: int = 0, explore: float = 0.0) -> None:
        self._network, self._actions, self._explore = network, actions, explore
        network.set_training_mode(False)

    def _tensor(self, obs: Observations) -> Any:
        return self._network.obs_to_tensor(np.asarray(obs))[0]

    def _distribution(self, obs: Observations) -> Any:
        import torch

        with torch.no_grad():
            return self._network.get_distribution(self._tensor(obs)).distribution

    def softmax(self, obs: Observations, t: Time) -> Floats:
        """PPO and A2C over numbered actions: probabilities [B, A]; the softmax is in float64."""
        logits = self._distribution(obs).logits.double()
        return np.asarray(logits.softmax(dim=1).cpu().numpy())

    def greedy(self, obs: Observations, t: Time) -> Floats:
        """DQN: the action of the largest value, but for a share of exploration, [B, A]."""
        import torch

        with torch.no_grad():
            best = self._network.q_net(self._tensor(obs)).argmax(dim=1).cpu().numpy()
        one_hot = np.eye(self._actions)[best]
        return np.asarray(self._explore / self._actions + (1 - self._explore) * one_hot)

    def mean(self, obs: Observations, t: Time) -> Floats:
        """PPO and A2C over a box: means [B, d]."""
        return np.asarray(self._distribution(obs).mean.double().cpu().numpy())

    def log_std(self, obs: Observations, t: Time) -> Floats:
        """Logarithm of the standard deviations [B, d]."""
        return np.asarray(self._distribution(obs).stddev.double().log().cpu().numpy())


# -- whatever a user has ---------------------------------------------------------------------------


def as_policy(source: object, name: str = "policy") -> Policy | ContinuousPolicy:
    """Make a policy of whatever the user has.

    A policy, a table, a torch module, a model of Stable-Baselines3, a function.

    Args:
        source: what the user has.
        name: of the argument, for messages.
    """
    if isinstance(source, LearnedBehavior):
        raise InputError(
            "policy: got a behavior policy from design or frontier, expected the target policy; "
            "are the two arguments swapped? Try evaluate(env, policy, behavior)"
        )
    if isinstance(source, Policy | ContinuousPolicy):
        return source
    if isinstance(source, np.ndarray | list | tuple):
        return TabularPolicy(source)
    if isinstance(source, type):
        made = source.__name__
        raise InputError(f"{name}: got the class {made}, expected an object of it; try {made}(...)")
    if is_sb3(source):
        return sb3_policy(source)
    if any(base.__module__.startswith("torch.") for base in type(source).__mro__):
        return TorchPolicy(source)  # type: ignore[arg-type]
    if callable(source):
        return CallablePolicy(source)
    raise InputError(
        f"{name}: got {type(source).__name__}, expected an object with probs(obs, t), a table "
        "[S, A] or [T, S, A], a torch module that gives logits, or a function (obs, t) -> [B, A]"
        + ("; several policies by name are for compare" if isinstance(source, Mapping) else "")
    )


def as_behavior(
    source: object, target: Policy | ContinuousPolicy | None = None
) -> Behavior | Policy | None:
    """Make a behavior policy of whatever the user has; None, for the target itself, stays None.

    Args:
        source: what the user has.
        target: what it is to be run for. A behavior policy that was designed for another one is
            refused: its control variate and what it promises are about that one.
    """
    if target is not None and isinstance(source, LearnedBehavior):
        source.check_target(target)
    if source is None or isinstance(source, Behavior):
        return source
    policy = as_policy(source, "run")
    if not isinstance(policy, Policy):
        raise InputError(
            "run: got a policy over continuous actions; expected one that re-weighs the "
            "target's candidates, weigh(offered, obs, t, state)"
        )
    return policy


def _checked(name: str, value: ArrayLike, rows: int) -> Floats:
    probs = check_probs(name, value, axes=("row",))
    if probs.ndim != 2 or len(probs) != rows:
        raise InputError(
            f"{name}: returned shape {probs.shape} for {rows} observations, expected "
            f"[{rows}, number of actions]"
        )
    return probs
