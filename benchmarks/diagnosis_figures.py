"""The figures of `diagnosis_accuracy.py`: what was named by what is true, and names by their confidence."""

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from paritas.detectors.diagnosis import Cause
from paritas.detectors.diagnosis.causes import MIN_CONFIDENCE

SIZES, DPI, HALF = {"confusion": (6.4, 5.8), "reliability": (4.4, 3.4)}, 90, 0.5


def draw(told, folder):
    """Draw the confusion matrix and the reliability of a summary into a folder."""
    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    for name, fill in (("confusion", draw_confusion), ("reliability", draw_reliability)):
        figure, axis = plt.subplots(figsize=SIZES[name], layout="constrained")
        fill(axis, told)
        figure.savefig(folder / f"{name}.png", dpi=DPI, metadata={"Software": None})
        plt.close(figure)


def draw_confusion(axis, told):
    """Draw what was named by what is true: shares of a row as shades, numbers of cases as text."""
    names = [cause.value for cause in Cause if cause is not Cause.ISOLATED]
    counts = np.array([[told["confusion"].get(t, {}).get(n, 0) for n in names] for t in names])
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axis.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            dark = shares[row, column] > HALF
            axis.text(
                column,
                row,
                str(count),
                ha="center",
                va="center",
                fontsize=7,
                color="white" if dark else "black",
            )
    axis.set_xticks(range(len(names)), names, rotation=50, ha="right", fontsize=7)
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.set_xlabel("named first", fontsize=8)
    axis.set_ylabel("true", fontsize=8)
    axis.set_title(
        f"{told['alarmed']} drawn faults with an alarm, {told['top1']:.1%} named right", fontsize=9
    )


def draw_reliability(axis, told):
    """Draw the share of right names by confidence, with the number of cases."""
    lines = told["reliability"]
    axis.plot([MIN_CONFIDENCE, 1.0], [MIN_CONFIDENCE, 1.0], "--", color="grey", linewidth=1)
    axis.plot([line["confidence"] for line in lines], [line["right"] for line in lines], "o-", markersize=4)
    for line in lines:
        axis.annotate(
            str(line["cases"]),
            (line["confidence"], line["right"]),
            fontsize=7,
            textcoords="offset points",
            xytext=(-4, -10),
            ha="right",
        )
    axis.set_xlabel("confidence", fontsize=8)
    axis.set_ylabel("share right", fontsize=8)
    axis.tick_params(labelsize=7)
    axis.set_title("names by confidence, with the number of cases", fontsize=9)
