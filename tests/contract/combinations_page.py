"""The page fedsim/docs/explanation/combinations.md, made from the outcomes of all cells.

`PYTHONPATH=tests python -m contract.combinations_page` writes it.
"""

from __future__ import annotations

import re
from pathlib import Path

from contract.combinations import EXCHANGES, PAIRS, POLICIES, ROWS, SIZES, Cell, outcome

PAGE = Path(__file__).parents[2] / "fedsim" / "docs" / "explanation" / "combinations.md"

HEAD = """# combinations: algorithms under policies and over exchanges

Every cell is executed in fedsim's tests for 3 rounds, with 4 clients of equal and of unequal sizes. `=` means that the
combination is accepted and that the theta of every site equals independent arithmetic. A number means that the
scenario is refused when it is made, with that sentence of the list at the end; X is the algorithm. Two marks, such as
`= 3`, are for equal and for unequal sizes. "QLSD, inverse" divides by the arrival probabilities of its cell. SGLD,
PSGLD, HMC and MALA run on one machine that holds all rows.
"""

LOSSES = """
## With losses

Clients of unequal sizes that drop out during their work, or that go offline and come back.
"""


class Sentences:
    """Refusals in the order in which they appear, each once; X is the algorithm's name."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}

    def mark(self, cell: Cell) -> str:
        refusal = outcome(cell).refusal
        if not refusal:
            return "="
        name = type(ROWS[cell.algorithm].algorithm).__name__
        general = re.sub(rf"^{name}\b|(?<=: ){name}(?= )|(?<= with ){name}(?=[:(])", "X", refusal)
        return str(self.found.setdefault(general, len(self.found) + 1))


def row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """The text of the page."""
    sentences, lines = Sentences(), [HEAD]
    for exchange in EXCHANGES:
        lines += [f"## {exchange}\n", row(["algorithm", *POLICIES]), row(["---"] * (1 + len(POLICIES)))]
        for name in ROWS:
            marks = [
                list(dict.fromkeys(sentences.mark(Cell(name, policy, exchange, sizes)) for sizes in SIZES))
                for policy in POLICIES
            ]
            lines.append(row([name, *(" ".join(own) for own in marks)]))
        lines.append("")
    lines[-1:] = [LOSSES, row(["losses", "policy", "exchange", "accepted", "refused"]), row(["---"] * 5)]
    for losses, policy, exchange in PAIRS:
        marks_of = {name: sentences.mark(Cell(name, policy, exchange, "unequal", losses)) for name in ROWS}
        accepted = [name for name, mark in marks_of.items() if mark == "="]
        refused = [f"{name} {mark}" for name, mark in marks_of.items() if mark != "="]
        few = ", ".join(refused) if len(refused) <= len(accepted) else "all others"
        many = ", ".join(accepted) if len(refused) > len(accepted) else "all others" if refused else "all"
        lines.append(row([losses, policy, exchange, many, few]))
    lines += ["", "## Sentences\n", *(f"{i}. {text}" for text, i in sentences.found.items()), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
