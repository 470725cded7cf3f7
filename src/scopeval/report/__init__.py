"""Results to one self-contained HTML page: no scripts, no requests, the same bytes every time."""

from scopeval.report.evaluation import page_of_evaluation
from scopeval.report.experiment import page_of_experiment
from scopeval.report.figures import figure_of
from scopeval.report.mujoco import page_of_mujoco
from scopeval.report.page import (
    Check,
    Fact,
    Figure,
    Page,
    Section,
    Table,
    Verdict,
    how_to_reproduce,
    render,
    write_report,
)

__all__ = [
    "Check",
    "Fact",
    "Figure",
    "Page",
    "Section",
    "Table",
    "Verdict",
    "figure_of",
    "how_to_reproduce",
    "page_of_evaluation",
    "page_of_experiment",
    "page_of_mujoco",
    "render",
    "write_report",
]
