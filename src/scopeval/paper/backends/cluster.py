"""Shards on a Ray cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from scopeval.errors import InputError, MissingExtraError
from scopeval.paper.backends.attempt import Attempt, Queue, attempt

__all__ = ["run_on_ray"]


def run_on_ray(
    work: Callable[[Any], Any], queue: Queue, workers: int | None, address: str | None
) -> None:
    """Compute everything in the queue on a cluster; a cluster started here is stopped here."""
    ray, ours = _connect(workers, address)
    remote = ray.remote(num_cpus=1, max_retries=0)(attempt)
    running: dict[Any, str] = {}
    try:
        while queue.waiting or running:
            # nodes may come and go, so the number of places is asked again every time
            places = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            while queue.waiting and len(running) < places:
                key, shard = queue.take()
                running[remote.remote(work, shard)] = key
            [done], _ = ray.wait(list(running), num_returns=1)
            queue.settle(running.pop(done), _result(ray, done))
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
        if ours:
            ray.shutdown()


def _connect(workers: int | None, address: str | None) -> tuple[Any, bool]:
    """The module `ray`, connected, and whether the connection was made here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "the ray backend") from error
    if ray.is_initialized():
        return ray, False
    how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        how |= {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(address=address, **how)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise InputError(
            f"address: no Ray cluster {where} ({' '.join(str(error).split())}); try "
            "ray start --head, or leave the address out"
        ) from error
    return ray, True


def _result(ray: Any, reference: Any) -> Attempt:
    try:
        ended: Attempt = ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # the function could not be loaded there
        return "failed", str(error)
    except ray.exceptions.RayError as error:
        return "lost", type(error).__name__
    return ended
