"""DDTree: DFlash's block, drafted as the tree of its most probable prefixes instead of one chain."""

from __future__ import annotations

from typing import Any

from whiflash_kernels.ddtree_build import best_first
from whiflash_sglang.drafters.base import Activate, VerifyShape
from whiflash_sglang.drafters.configs import DFlashShape
from whiflash_sglang.drafters.dflash import DFlashDrafter
from whiflash_sglang.drafters.tree import tree_verify_input
from whiflash_sglang.drafters.tree_budget import TreeBudget
from whiflash_sglang.ranks import rank_0s


class DDTreeDrafter(DFlashDrafter):
    """Block-diffusion drafter: a tree of as many nodes as ``budget`` chooses, the root not counted.

    Source: DDTree, as the WhiFlash model cards use it.
    """

    name = "ddtree"

    def __init__(
        self, worker: Any, target_worker: Any, shape: DFlashShape, *others: Any, budget: TreeBudget
    ) -> None:
        self._budget = budget
        super().__init__(worker, target_worker, shape, *others)

    def draft(self, batch: Any, activate: Activate) -> Any:
        """See :class:`~whiflash_sglang.drafters.base.Drafter`."""
        widest = self.shapes[-1]
        hidden = self._drafted_hidden(batch)[:, : widest.depth]
        nodes = widest.width - 1
        ids, log_probs = self._vocabulary.top_log_probs(hidden.flatten(0, 1), nodes)
        by_position = len(hidden), widest.depth, ids.shape[-1]
        tree = best_first(log_probs.view(by_position), ids.view(by_position), nodes)
        chosen = rank_0s(self._budget.choose(tree.log_probs), batch.device)
        shape = next(shape for shape in self.shapes if shape.width == chosen + 1)
        activate(shape)
        self.expected = 1 + tree.log_probs[:, :chosen].exp().sum(dim=1)
        parents = tree.parents[:, :chosen].tolist()
        return tree_verify_input(batch, tree.tokens[:, :chosen], parents, shape.depth, self._target_worker)

    def _shapes(self) -> tuple[VerifyShape, ...]:
        """One per budget; a node's fan is at most the whole tree."""
        return tuple(
            VerifyShape(width=nodes + 1, topk=nodes, depth=min(self._block - 1, nodes))
            for nodes in self._budget.ladder
        )
