"""``scopeval demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from scopeval.cli.console import columns, out, paragraph, plus_minus, progress_bar

__all__ = ["demo"]


def demo(
    seed: Annotated[int, typer.Option(help="Of the world, the policy and the episodes.")] = 0,
    episodes: Annotated[int, typer.Option(help="Episodes of one run.")] = 1000,
    runs: Annotated[int, typer.Option(help="Runs of each method.")] = 200,
) -> None:
    """Evaluate one policy in four ways, in seconds."""
    from scopeval.experiments.demo import Config, run

    config = Config(seed=seed, episodes=episodes, runs=runs)
    with progress_bar("designing and simulating (the first time also compiling)"):
        result = run(config)
    console = out()
    pm = plus_minus(console)
    console.print("[bold]What is a policy worth, and what does it cost to find out?[/]\n")
    paragraph(
        console,
        f"A 10 x 10 Gridworld with random rewards and costs, a policy whose exact value is "
        f"{result.truth:.4f}, and four ways to estimate that value from {episodes:,} simulated "
        f"episodes; each is repeated {runs:,} times.",
    )
    console.print()
    table = columns(
        "\nmethod",
        "\nfirst estimate",
        "typical\nerror",
        "\nvariance",
        "\ncost",
        "worst\nstate",
        "cost\nneeded",
    )
    for row in result.rows:
        table.add_row(
            row.method,
            f"{row.first_run.estimate:.4f} {pm} {row.first_run.half_width:.4f}",
            f"{row.error:.4f}",
            f"{row.variance:.3f}",
            f"{row.cost:.3f}",
            f"{row.worst_state:.2f}",
            f"{row.needed:,.0f}",
        )
    console.print(table)
    console.print()
    paragraph(
        console,
        "Variance and cost of an episode are measured, relative to running the policy itself "
        "(on-policy). Cost needed: for the accuracy of 1,000 on-policy episodes, in on-policy "
        "episodes. Worst state: expected cost from a state on, relative to the policy's, where it "
        f"is largest (exact). {pm}: 95 % interval.",
    )
    console.print()
    odi = next(row for row in result.rows if row.method == "odi")
    paragraph(
        console,
        f"odi ignores cost: from its worst state on it costs {odi.worst_state:.1f} times as much "
        "as the policy would. scope, the paper's method, and scope-dr, the same with a control "
        "variate, promise at most 1 from every state on. Here all are designed from exact values, "
        f"the best case. This is world {seed}; for another: scopeval demo --seed {seed + 1}",
    )
