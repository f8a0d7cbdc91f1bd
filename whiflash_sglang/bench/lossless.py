"""The lossless check: an arm's token ids against plain decoding's, on the same prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from whiflash_sglang.bench.answers import Answer, ArmRun
from whiflash_sglang.bench.arm_names import PLAIN
from whiflash_sglang.bench.arms import ArmProcess

# Below this gap between plain decoding's two best logits, another order of
# additions may pick the other token: a near-tie, not a fault.
NEAR_TIE = 1e-4


@dataclass
class Difference:
    """The first token at which two answers part, and plain decoding's margin there."""

    id: str
    category: str
    position: int
    plain_token: int | None
    arm_token: int | None
    prefix: list[int] = field(repr=False)
    margin: float | None = None

    @property
    def is_near_tie(self) -> bool:
        """Whether rounding alone explains the difference."""
        return self.margin is not None and self.margin < NEAR_TIE

    def to_json(self) -> dict[str, Any]:
        """Without the prefix."""
        fields = ("id", "category", "position", "plain_token", "arm_token", "margin", "is_near_tie")
        return {name: getattr(self, name) for name in fields}


@dataclass
class Lossless:
    """Outcome of the check of one arm."""

    arm: str
    compared: dict[str, str]  # request id -> category
    differences: list[Difference]

    @property
    def counted(self) -> list[Difference]:
        """Differences that rounding does not explain."""
        return [d for d in self.differences if not d.is_near_tie]

    def fraction(self, category: str | None) -> str:
        """``identical/compared`` of a category, or of all."""
        ids = [i for i, c in self.compared.items() if category in (None, c)]
        different = {d.id for d in self.differences}
        return f"{sum(i not in different for i in ids)}/{len(ids)}"

    def lines(self) -> list[str]:
        """For people."""
        verdict = (
            f"lossless: {self.fraction(None)} answers of {self.arm} are plain decoding's, token for token"
        )
        shown = [
            f"  {d.id}: differs at token {d.position} (plain {d.plain_token}, here {d.arm_token}; margin of "
            f"plain's two best logits {'unknown' if d.margin is None else format(d.margin, '.2e')}"
            f"{', a near-tie' if d.is_near_tie else ''})"
            for d in self.differences
        ]
        return [verdict, *shown]

    def to_json(self) -> dict[str, Any]:
        """For the result file."""
        first = self.counted[0].to_json() if self.counted else None
        return {
            "arm": self.arm,
            "compared": len(self.compared),
            "identical": len(self.compared) - len(self.differences),
            "first_difference": first,
            "near_ties": [d.to_json() for d in self.differences if d.is_near_tie],
            "differences": [d.to_json() for d in self.differences],
        }


def compare(plain: ArmRun, arm: ArmRun) -> Lossless:
    """Compare answers with the same prompt; failed ones are not compared.

    A later turn's prompt holds the earlier answers, so after a difference the
    rest of that conversation is left out.
    """
    theirs = {answer.id: answer for answer in arm.answers}
    compared, differences = {}, []
    for mine in plain.answers:
        other = theirs.get(mine.id)
        if other is None or mine.error or other.error or mine.prompt_ids != other.prompt_ids:
            continue
        compared[mine.id] = mine.category
        if mine.output_ids != other.output_ids:
            differences.append(_first_difference(mine, other))
    return Lossless(arm.name, compared, differences)


def check_arms(runs: Sequence[ArmRun], processes: Sequence[ArmProcess]) -> list[Lossless]:
    """Compare every other arm with plain decoding, margins included; nothing where plain did not run."""
    for plain, process in zip(runs, processes, strict=True):
        if plain.name == PLAIN:
            checks = [compare(plain, run) for run in runs if run is not plain]
            for check in checks:
                measure_margins(check.differences, process)
            return checks
    return []


def measure_margins(differences: list[Difference], plain: ArmProcess) -> None:
    """Ask plain decoding for its two best logits at each difference."""
    for difference in differences:
        best, second = plain.two_best_logprobs(difference.prefix)
        difference.margin = best - second


def _first_difference(mine: Answer, other: Answer) -> Difference:
    a, b = mine.output_ids, other.output_ids
    shared = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return Difference(
        id=mine.id,
        category=mine.category,
        position=shared,
        plain_token=a[shared] if shared < len(a) else None,
        arm_token=b[shared] if shared < len(b) else None,
        prefix=mine.prompt_ids + a[:shared],
    )
