"""The one place where flags, YAML and Python arguments become a validated configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PAIRS = ("df-e3", "ddt-e3")
ROUTERS = ("neural", "entropy", "dflash", "ddtree", "eagle3", "alternate", "random")
MAX_TREE_BUDGET = 512
AUTO = "auto"
AUTO_LADDER = (8, 16, 32, 64, 128)  # the budgets that "auto" chooses from
VERIFY_KERNELS = ("sglang", "triton")

# EAGLE-3's tree in the published runs: steps, top-k, verify tokens with the root.
DEFAULT_EAGLE_TREE = (8, 10, 60)


def tree_budget(text: str) -> int | str:
    """A value of ``--ddtree-tree-budget``.

    Raises:
        ValueError: neither a whole number nor ``auto``.
    """
    return AUTO if text == AUTO else int(text)


def _option(flag: str, help: str, default: Any = None, **argparse_options: Any) -> Any:
    """A config field and, in its metadata, the command-line flag that sets it."""
    metadata = {"flag": flag, "help": help, "argparse": argparse_options}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class WhiflashConfig:
    """What WHIFLASH needs beyond SGLang's own arguments. Frozen; build it with :meth:`from_mapping`.

    EAGLE-3's tree shape stays in SGLang's ``speculative_num_steps``,
    ``speculative_eagle_topk`` and ``speculative_num_draft_tokens``.
    """

    dflash_draft: str | None = None  # --speculative-draft-model-path
    dflash_draft_revision: str | None = None  # --speculative-draft-model-revision
    drafters: str = _option(
        "--whiflash-drafters", "The pair of drafters to route between.", "df-e3", choices=PAIRS
    )
    eagle_draft: str | None = _option("--whiflash-eagle-draft", "EAGLE-3 draft: Hub repo id or folder.")
    eagle_draft_revision: str | None = _option(
        "--whiflash-eagle-draft-revision", "Branch, tag or commit of the EAGLE-3 draft."
    )
    router: str = _option(
        "--whiflash-router",
        "Who picks the drafter of a round. dflash, ddtree and eagle3 always pick that one; "
        "alternate and random are test and baseline arms.",
        "neural",
        choices=ROUTERS,
    )
    neural_router_path: str | None = _option(
        "--whiflash-neural-router-path",
        "Neural router: Hub repo id, folder or .safetensors file.",
    )
    neural_router_threshold: float | None = _option(
        "--whiflash-neural-router-threshold",
        "A round goes to the router's positive drafter when the summed (score - threshold) is above 0. "
        "Default: the router's config.json, else 0.",
        type=float,
    )
    entropy_threshold: float | None = _option(
        "--whiflash-entropy-threshold",
        "Target entropy, in nats, above which a round goes to EAGLE-3.",
        type=float,
    )
    router_seed: int = _option("--whiflash-router-seed", "Seed of the random router.", 0, type=int)
    ddtree_tree_budget: int | str | None = _option(
        "--ddtree-tree-budget",
        f"Draft nodes of a DDTree, without the root, or {AUTO!r}: each round the one of "
        f"{', '.join(map(str, AUTO_LADDER))} that pays best on this machine. Belongs to ddt-e3.",
        type=tree_budget,
        metavar=f"NODES|{AUTO}",
    )
    allow_budget_mismatch: bool = _option(
        "--whiflash-allow-budget-mismatch",
        "Take a neural router that was trained for another tree budget.",
        False,
        action="store_true",
    )
    calibration: str | None = _option(
        "--whiflash-calibration",
        f"File with the cost of a verify row, for --ddtree-tree-budget {AUTO}: read if it exists, and kept up to "
        "date. Default: one per target, device and dtype in the cache folder.",
        metavar="PATH",
    )
    verify_kernels: str = _option(
        "--whiflash-verify-kernels",
        "Who walks the verified tree: SGLang's ops, or this package's Triton kernels (for comparison; the "
        "noise of seeded sampling differs). On a CPU triton needs TRITON_INTERPRET=1.",
        "sglang",
        choices=VERIFY_KERNELS,
    )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> WhiflashConfig:
        """A validated config from field names and values.

        Raises:
            ValueError: an unknown key, or any fault :meth:`validate` finds.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"unknown WHIFLASH option(s) {unknown}; known are {sorted(known)}")
        config = cls(**values)
        config.validate()
        return config

    def validate(self) -> None:
        """Refuse values that cannot work together, before any weight is loaded.

        Raises:
            ValueError: names the flag and the value.
        """
        self._require_choice("drafters", PAIRS)
        self._require_choice("router", ROUTERS)
        self._require_choice("verify_kernels", VERIFY_KERNELS)
        self._require_drafts()
        self._require_router_inputs()
        self._require_pair()

    def _require_choice(self, name: str, choices: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in choices:
            raise ValueError(f"{flag_of(name)} is {value!r}; choose one of {', '.join(choices)}")

    def _require_drafts(self) -> None:
        if not self.dflash_draft:
            raise ValueError(
                "--speculative-draft-model-path is missing: WHIFLASH needs the DFlash draft there "
                "(and the EAGLE-3 draft in --whiflash-eagle-draft)"
            )
        if not self.eagle_draft:
            raise ValueError(
                "--whiflash-eagle-draft is missing: WHIFLASH needs the EAGLE-3 draft there "
                f"(the DFlash draft is {self.dflash_draft!r})"
            )

    def _require_router_inputs(self) -> None:
        if self.router == "neural" and not self.neural_router_path:
            raise ValueError(
                "--whiflash-router is 'neural' but --whiflash-neural-router-path is missing; "
                f"name a router, or choose another of {', '.join(ROUTERS)}"
            )
        if self.router == "entropy":
            if self.entropy_threshold is None:
                raise ValueError(
                    "--whiflash-router is 'entropy' but --whiflash-entropy-threshold (nats) is missing"
                )
            if not self.entropy_threshold >= 0:
                raise ValueError(
                    f"--whiflash-entropy-threshold is {self.entropy_threshold}; an entropy is at least 0 nats"
                )

    def _require_pair(self) -> None:
        budget, other = self.ddtree_tree_budget, {"df-e3": "ddtree", "ddt-e3": "dflash"}[self.drafters]
        if self.router == other:
            raise ValueError(f"--whiflash-router is {other!r}, which is not in the pair {self.drafters!r}")
        if self.drafters == "df-e3" and budget is not None:
            raise ValueError(
                f"--ddtree-tree-budget is {budget}, but --whiflash-drafters is "
                f"{self.drafters!r}: only ddt-e3 has a tree budget"
            )
        whole = isinstance(budget, int) and 1 <= budget <= MAX_TREE_BUDGET
        if self.drafters == "ddt-e3" and budget != AUTO and not whole:
            raise ValueError(
                f"--whiflash-drafters ddt-e3 needs --ddtree-tree-budget of 1 to {MAX_TREE_BUDGET}, or {AUTO!r}; "
                f"it is {budget!r}"
            )
        if self.calibration is not None and budget != AUTO:
            raise ValueError(
                f"--whiflash-calibration is {self.calibration!r}, but --ddtree-tree-budget is {budget!r}: "
                f"only {AUTO!r} calibrates"
            )

    @property
    def takes_any_budget(self) -> bool:
        """Whether a router trained for another tree budget will do; where the budget adapts, none is the run's."""
        return self.allow_budget_mismatch or self.ddtree_tree_budget == AUTO

    @property
    def tree_budgets(self) -> tuple[int, ...]:
        """The budgets a DDTree may have, ascending; none without DDTree."""
        if self.ddtree_tree_budget is None:
            return ()
        return AUTO_LADDER if self.ddtree_tree_budget == AUTO else (int(self.ddtree_tree_budget),)


def flag_of(name: str) -> str:
    """The command-line flag that sets a config field."""
    special = {
        "dflash_draft": "--speculative-draft-model-path",
        "dflash_draft_revision": "--speculative-draft-model-revision",
    }
    if name in special:
        return special[name]
    by_name = {f.name: f for f in dataclasses.fields(WhiflashConfig)}
    return by_name[name].metadata["flag"]
