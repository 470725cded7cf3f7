"""What the service counts, in the text format of Prometheus."""

from __future__ import annotations

import bisect
import math
import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from scopeval.campaign.status import CampaignStatus

__all__ = ["Metrics", "campaign_lines"]

#: Upper ends of the times of a call that are counted, in seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts calls by route and status, and how long they took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: Counter[tuple[str, int]] = Counter()
        self._times: dict[str, list[int]] = {}
        self._sums: Counter[str] = Counter()

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count one call."""
        with self._lock:
            self._calls[route, status] += 1
            times = self._times.setdefault(route, [0] * (len(BUCKETS) + 1))
            times[bisect.bisect_left(BUCKETS, seconds)] += 1
            self._sums[route] += seconds  # type: ignore[assignment]

    def lines(self) -> list[str]:
        """The lines about calls."""
        with self._lock:
            calls, times, sums = dict(self._calls), dict(self._times), dict(self._sums)
        found = heading("scopeval_http_requests_total", "counter", "Calls by route and status.")
        for (route, status), n in sorted(calls.items()):
            found.append(
                line("scopeval_http_requests_total", n, {"route": route, "status": str(status)})
            )
        name = "scopeval_http_request_seconds"
        found += heading(name, "histogram", "Time from the head of a call to its answer.")
        for route, counts in sorted(times.items()):
            total = 0
            for end, n in zip((*BUCKETS, math.inf), counts, strict=True):
                total += n
                le = "+Inf" if math.isinf(end) else f"{end:g}"
                found.append(line(f"{name}_bucket", total, {"route": route, "le": le}))
            found.append(line(f"{name}_sum", sums[route], {"route": route}))
            found.append(line(f"{name}_count", total, {"route": route}))
        return found


def heading(name: str, kind: str, about: str) -> list[str]:
    """The two lines before a metric."""
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def line(name: str, value: float, labels: Mapping[str, str] | None = None) -> str:
    """One line; labels are escaped."""
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in (labels or {}).items())
    number = f"{value:d}" if isinstance(value, int) else _number(float(value))
    return f"{name}{{{inside}}} {number}" if inside else f"{name} {number}"


def _number(x: float) -> str:
    if math.isnan(x):
        return "NaN"
    return ("+Inf" if x > 0 else "-Inf") if math.isinf(x) else repr(x)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def campaign_lines(status: CampaignStatus, counters: Mapping[str, tuple[str, int]]) -> list[str]:
    """The lines about the campaign.

    Args:
        status: of the campaign.
        counters: what the service counts itself: name -> (what it is, number).
    """
    found: list[str] = []

    def gauge(name: str, about: str, values: Iterable[tuple[Mapping[str, str], float]]) -> None:
        found.extend(heading(name, "gauge", about))
        found.extend(line(name, value, labels) for labels, value in values)

    states = ("running", "paused", "handed over", "stopped")
    gauge(
        "scopeval_campaign_state",
        "1 for the state that the campaign is in.",
        [({"state": state}, int(status.state == state)) for state in states],
    )
    numbers = {"open": status.open, "finished": status.finished, "lost": status.lost}
    gauge("scopeval_episodes", "Episodes.", [({"state": k}, n) for k, n in numbers.items()])
    value = status.interval
    for name, about, number in (
        ("scopeval_value", "Estimate of the target policy's value.", value.estimate),
        ("scopeval_value_low", "Lower end of its anytime-valid interval.", value.low),
        ("scopeval_value_high", "Upper end of its anytime-valid interval.", value.high),
        ("scopeval_cost_spent", "Cost of all episodes.", status.spent),
        ("scopeval_share", "Share of the behavior policy in new episodes.", status.share),
        ("scopeval_design", "Number of the design of new episodes.", status.design),
        ("scopeval_last_event", "Number of the last event.", status.last_event),
        ("scopeval_plants_silent", "Plants that have fallen silent in an episode.",
         sum(plant.silent for plant in status.plants)),
    ):  # fmt: skip
        gauge(name, about, [({}, number)])
    gauge(
        "scopeval_guard_alarm",
        "1 for guards that have raised an alarm.",
        [
            ({"guard": str(k), "rule": guard.rule}, int(guard.alarm is not None))
            for k, guard in enumerate(status.guards)
        ],
    )
    gauge(
        "scopeval_plant_seen_timestamp_seconds",
        "The plant's last sign of life.",
        [({"plant": plant.name}, plant.seen) for plant in status.plants],
    )
    for name, (about, n) in counters.items():
        found += [*heading(name, "counter", about), line(name, n)]
    return found
