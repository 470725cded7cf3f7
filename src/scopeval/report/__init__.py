"""Results to one self-contained HTML page: no scripts, no requests, the same bytes every time."""

from scopeval.report.comparison_page import page_of_comparison
from scopeval.report.evaluation_page import page_of_evaluation
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
from scopeval.report.svg import figure_of

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
    "page_of_comparison",
    "page_of_evaluation",
    "render",
    "write_report",
]
