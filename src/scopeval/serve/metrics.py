"""What the service counts, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector

from scopeval import __version__
from scopeval.campaign.view import CampaignStatus

__all__ = ["Counts", "Metrics"]

STATES = ("running", "paused", "handed over", "stopped")


@dataclass(frozen=True)
class Counts:
    """What the parts of a service have counted.

    Attributes:
        totals: by name, see TOTALS.
        waiting: calls that wait for the database.
        webhook_waiting: events that wait for another try.
        refused: calls by status.
    """

    totals: Mapping[str, int]
    waiting: int
    webhook_waiting: int
    refused: Mapping[int, int]


class Metrics:
    """Counts calls by route and status, and how long they took."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._calls = Counter(
            "scopeval_http_requests",
            "Calls by route and status.",
            ("route", "status"),
            registry=self._registry,
        )
        self._times = Histogram(
            "scopeval_http_request_duration_seconds",
            "Time from the head of a call to its answer.",
            ("route",),
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count one call."""
        self._calls.labels(route, str(status)).inc()
        self._times.labels(route).observe(seconds)

    def text(self, status: CampaignStatus, counts: Counts) -> bytes:
        """All of it."""
        registry = CollectorRegistry()
        registry.register(_Collector([*_campaign(status), *_service(counts)]))
        content: bytes = generate_latest(registry) + generate_latest(self._registry)
        return content


class _Collector:
    """Gives metrics that are made when they are asked for."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        return iter(self._metrics)


def _campaign(status: CampaignStatus) -> Iterator[Metric]:
    """The numbers about the campaign."""
    gauge = GaugeMetricFamily(
        "scopeval_campaign_state", "1 for the state that it is in.", labels=["state"]
    )
    for name in STATES:
        gauge.add_metric([name], int(status.state == name))
    yield gauge
    gauge = GaugeMetricFamily("scopeval_episodes", "Episodes.", labels=["state"])
    numbers = {"open": status.open, "finished": status.finished, "lost": status.lost}
    for name, episodes in (numbers | {"shadow": status.shadowed}).items():
        gauge.add_metric([name], episodes)
    yield gauge
    value = status.interval
    silent = sum(plant.silent for plant in status.plants)
    for name, about, number in (
        ("value", "Estimate of the target policy's value.", value.estimate),
        ("value_low", "Lower end of its anytime-valid interval.", value.low),
        ("value_high", "Upper end of its anytime-valid interval.", value.high),
        ("cost_spent", "Cost of all episodes.", status.spent),
        ("share", "Share of the behavior policy in new episodes.", status.share),
        ("design", "Number of the design of new episodes.", status.design),
        ("last_event", "Number of the last event.", status.last_event),
        ("plants_silent", "Plants that have fallen silent in an episode.", silent),
        ("problems", "Problems that somebody should see to.", len(status.problems)),
        ("refit_failed", "1 where a design that is due could not be computed.",
         int(status.refit_failure is not None)),
        ("unconfirmed", "1 where the design in use is not confirmed.",
         int(status.unconfirmed is not None)),
    ):  # fmt: skip
        yield GaugeMetricFamily(f"scopeval_{name}", about, value=number)
    if status.policies:
        yield from _policies(status)
    gauge = GaugeMetricFamily(
        "scopeval_guard_alarm", "1 for guards that have raised an alarm.", labels=["guard", "rule"]
    )
    for k, guard in enumerate(status.guards):
        gauge.add_metric([str(k), guard.rule], int(guard.alarm is not None))
    yield gauge
    gauge = GaugeMetricFamily(
        "scopeval_plant_seen_timestamp_seconds", "Last sign of life.", labels=["plant"]
    )
    for plant in status.plants:
        gauge.add_metric([plant.name], plant.seen)
    yield gauge


def _policies(status: CampaignStatus) -> Iterator[Metric]:
    """The numbers about several policies, as of the last look."""
    base = status.policies[0].name
    share = GaugeMetricFamily("scopeval_policy_share", "Share of new episodes.", labels=["policy"])
    for one in status.policies:
        share.add_metric([one.name], one.share)
    yield share
    for name, about in (
        ("difference", "Value less that of the baseline."),
        ("low", "Lower end of its anytime-valid interval."),
        ("high", "Upper end of its anytime-valid interval."),
    ):
        title = "difference" if name == "difference" else f"difference_{name}"
        gauge = GaugeMetricFamily(f"scopeval_{title}", about, labels=["policy", "baseline"])
        for one in status.policies[1:]:
            gauge.add_metric([one.name, base], getattr(one, name))
        yield gauge
    yield GaugeMetricFamily(
        "scopeval_looked_episodes", "Finished episodes at the last look.", value=status.looked
    )


#: What the totals are.
TOTALS = {
    "decisions": "Decisions answered.",
    "transactions": "Transactions written.",
    "written_calls": "Calls in these transactions.",
    "database_errors": "Transactions that were not committed.",
    "webhook_failures": "Events that a webhook did not take, given up.",
}


def _service(counts: Counts) -> Iterator[Metric]:
    """The numbers about the service."""
    about = GaugeMetricFamily("scopeval_build_info", "The version.", labels=["version"])
    about.add_metric([__version__], 1)
    yield about
    for name, text in TOTALS.items():
        yield CounterMetricFamily(f"scopeval_{name}", text, value=counts.totals[name])
    yield GaugeMetricFamily("scopeval_waiting_calls", "Calls that wait.", value=counts.waiting)
    yield GaugeMetricFamily(
        "scopeval_webhook_waiting",
        "Events that wait for another try.",
        value=counts.webhook_waiting,
    )
    refused = CounterMetricFamily(
        "scopeval_refused", "Calls with a wrong token, role or rate.", labels=["status"]
    )
    for status, calls in sorted(counts.refused.items()):
        refused.add_metric([str(status)], calls)
    yield refused
