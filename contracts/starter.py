"""The first contract of a user: small, commented, and without a warning."""

from string import Template

from paritas.contracts.load import load_preset
from paritas.contracts.model import Clause

__all__ = ["starter_text"]

_TEXT = Template("""\
# A kernel contract: when do the training kernel and the inference kernel of one policy agree?
# Check it:            paritas contract lint $file
# What a clause means: paritas contract explain tv
apiVersion: paritas.dev/v1
kind: KernelContract
metadata:
  name: $name
  version: 1.0.0          # paritas contract diff OLD NEW says when a change loosens it
spec:
  preset: $preset
  # The preset gives these clauses; one of the same id below replaces it:
$clauses
  slices:
    - {name: all}
    - {name: replica, by: [replica], at_most: 16}   # one slice for each value of the label
  # kernels:              # what each kernel must be; checked by a kernel_identity clause
  #   train:     {engine: fsdp, dtype: bfloat16}
  #   inference: {engine: vllm, dtype: bfloat16}
  # clauses:
  #   numerical:
  #     - {id: token-tv, statistic: tv, at_most: 0.03}
  #   runtime:
  #     - {id: ttft, statistic: time_to_first_token, quantile: 0.99, at_most: 800ms}
  # promotion:            # gates before production
  #   offline_ci: {suite: prompts.jsonl, alpha: 0.01}
  #   shadow:     {share: 0.05, at_least: {sequences: 2000}, deadline: 6h}
""")


def starter_text(*, name: str, preset: str, file: str) -> str:
    """Return the text of a first contract.

    Raises
    ------
    KeyError
        If the package has no such preset.
    """
    clauses = "\n".join(f"  #   {_summary(clause)}" for clause in load_preset(preset).clauses)
    return _TEXT.substitute(name=name, preset=preset, file=file, clauses=clauses)


def _summary(clause: Clause) -> str:
    side, limit = ("at_most", clause.at_most) if clause.at_most is not None else ("at_least", clause.at_least)
    above = "" if clause.above is None else f" above {clause.above:g}"
    return f"{clause.id:<14} {clause.statistic}{above} {side} {limit:g}"
