"""The sink: tables on the terminal, CSV and JSON in a folder, figures where matplotlib is installed."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paritas.commands.experiments.result import Cell, Curve, Figure, Panel, Result, Table
from paritas.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

__all__ = ["NO_FIGURES", "csv_text", "made_folder", "show", "show_summary", "write"]

NO_FIGURES = "no figures: matplotlib is not installed (pip install 'paritas[experiment]')"
OUT_HINT = "--out takes a folder that is there or can be made, and is writable"
WIDTH_IN, HEIGHT_IN, DPI = 4.6, 3.4, 90  # of a panel; a figure of two stays below 100 kB
LONGEST_KEY = 40  # characters of a first column that is not wrapped
MOST_ROWS = 100  # of a table on the terminal
STYLES = {"line": "-", "dashed": "--", "points": "none"}


def made_folder(folder: Path) -> Path:
    """Make a folder and see that it can be written to; raises `UsageError` where it cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".paritas-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}", hint=OUT_HINT) from error
    return folder


def write(result: Result, folder: Path) -> tuple[list[Path], str]:
    """Write every table and figure; return the files and what is missing, in words.

    Raises
    ------
    UsageError
        Where the file system refuses.
    """
    texts = {f"{table.name}.csv": csv_text(table) for table in result.tables}
    texts["result.json"] = json.dumps(result.as_dict(), indent=1, allow_nan=False) + "\n"
    images, missing = _drawn(result.figures)
    contents = {name: text.encode() for name, text in texts.items()} | images
    try:
        for name, content in contents.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}", hint=OUT_HINT) from error
    return [folder / name for name in contents], missing


def csv_text(table: Table) -> str:
    """Return a table as CSV; an unknown number is an empty cell.

    Examples
    --------
    >>> print(csv_text(Table("t", "", ("a", "b"), ((1, None),))), end="")
    a,b
    1,
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return out.getvalue()


def _drawn(figures: tuple[Figure, ...]) -> tuple[dict[str, bytes], str]:
    """PNG by file name, and a line where they could not be drawn."""
    if not figures:
        return {}, ""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        return {}, NO_FIGURES
    mpl.use("Agg")
    return {f"{figure.name}.png": _png(figure) for figure in figures}, ""


def _png(figure: Figure) -> bytes:
    from matplotlib import pyplot as plt

    named = max(len(panel.names) for panel in figure.panels)
    size = (WIDTH_IN * len(figure.panels), max(HEIGHT_IN, 0.16 * named + 0.9))
    drawn, axes = plt.subplots(1, len(figure.panels), figsize=size, squeeze=False, layout="constrained")
    for axis, panel in zip(axes[0], figure.panels, strict=True):
        _draw(axis, panel)
    out = io.BytesIO()
    drawn.savefig(out, format="png", dpi=DPI, metadata={"Software": None})
    plt.close(drawn)
    return out.getvalue()


def _draw(axis: "Axes", panel: Panel) -> None:
    from matplotlib.ticker import NullFormatter

    axis.set_title(panel.title, fontsize=9)
    axis.set_xlabel(panel.x_label, fontsize=8)
    axis.set_ylabel(panel.y_label, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.set_xscale("log" if panel.is_log[0] else "linear")
    axis.set_yscale("log" if panel.is_log[1] else "linear")
    for line, is_log in zip((axis.xaxis, axis.yaxis), panel.is_log, strict=True):
        if is_log:
            line.set_minor_formatter(NullFormatter())  # their labels would stand on one another
    for one in panel.curves:
        _plot(axis, one)
    if panel.names:
        axis.set_yticks(range(len(panel.names)), panel.names, fontsize=6.5)
    axis.grid(visible=True, alpha=0.25, linewidth=0.5)
    if any(one.label for one in panel.curves):
        _legend(axis, below=bool(panel.names))


def _legend(axis: "Axes", *, below: bool) -> None:
    """Inside where there is room; below named rows, which would be covered."""
    if not below:
        axis.legend(fontsize=6.5, framealpha=0.7)
        return
    place = (0.5, -0.6 / axis.get_window_extent().height * DPI)  # 0.6 inches under the axes
    axis.legend(fontsize=6.5, ncols=3, loc="upper center", bbox_to_anchor=place)


def _plot(axis: "Axes", one: Curve) -> None:
    marker = "." if one.kind == "points" or len(one.x) == 1 else ""
    axis.plot(
        *(one.x, one.y),
        linestyle=STYLES[one.kind],
        marker=marker,
        markersize=5,
        linewidth=1.2,
        label=one.label or None,
    )


def show(result: Result, console: "Console") -> None:
    """Print every table and claim."""
    from rich.markup import escape

    console.print(f"[bold]{result.name}[/]  seed {result.seed}")
    for table in result.tables:
        console.print(f"\n[bold]{table.name}[/]  [dim]{escape(table.says)}[/]")
        long = f"[dim]{len(table.rows)} rows: --json or --out DIR gives them[/]"
        console.print(long if len(table.rows) > MOST_ROWS else _terminal(table))
    console.print("")
    for claim in result.claims:
        missed = "[bold red]broken[/]" if claim.is_promise else "[yellow]missed[/]"
        word = "[green]held[/]" if claim.holds else missed
        console.print(f"{word}  {escape(claim.says)}: {escape(claim.measured)}")


def show_summary(results: Sequence[Result], console: "Console") -> None:
    """Print every claim of some results in one table."""
    rows = tuple(
        (claim.says, claim.measured, claim.goal, claim.word, result.seed)
        for result in results
        for claim in result.claims
    )
    console.print("[bold]summary[/]")
    console.print(_terminal(Table("summary", "", ("criterion", "figure", "goal", "result", "seed"), rows)))


def _terminal(table: Table) -> object:
    from rich.table import Table as Terminal

    shown = Terminal(box=None, pad_edge=False, header_style="bold")
    for name, cells in zip(table.columns, _columns(table), strict=True):
        numeric = all(isinstance(cell, int | float) or cell is None for cell in cells)
        is_key = (
            name == table.columns[0] and max((len(str(cell)) for cell in cells), default=0) <= LONGEST_KEY
        )
        shown.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=is_key)
    for row in table.rows:
        shown.add_row(*map(_text, row))
    return shown


def _columns(table: Table) -> list[tuple[Cell, ...]]:
    return list(zip(*table.rows, strict=True)) if table.rows else [() for _ in table.columns]


def _text(cell: Cell) -> str:
    from rich.markup import escape

    from paritas.commands.report import number

    if cell is None:
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return number(cell) if isinstance(cell, float) else escape(str(cell))
