"""DDTree: DFlash's block, drafted as the tree of its most probable prefixes instead of one chain."""

from __future__ import annotations

from typing import Any

from whiflash_kernels.ddtree_build import best_first
from whiflash_sglang.drafters.configs import DFlashShape
from whiflash_sglang.drafters.dflash import DFlashDrafter
from whiflash_sglang.drafters.tree import tree_verify_input


class DDTreeDrafter(DFlashDrafter):
    """Block-diffusion drafter: a tree of ``budget`` nodes a round, the root not counted.

    Source: DDTree, as the WhiFlash model cards use it.
    """

    name = "ddtree"

    def __init__(
        self, worker: Any, target_worker: Any, shape: DFlashShape, *others: Any, budget: int
    ) -> None:
        super().__init__(worker, target_worker, shape, *others)
        self._budget = budget
        self.width = budget + 1
        self.depth = min(shape.block_size - 1, budget)
        self.topk = budget  # the widest fan a node can have

    def draft(self, batch: Any) -> Any:
        """See :class:`~whiflash_sglang.drafters.base.Drafter`."""
        hidden = self._drafted_hidden(batch)[:, : self.depth]
        ids, log_probs = self._vocabulary.top_log_probs(hidden.flatten(0, 1), self._budget)
        shape = len(hidden), self.depth, ids.shape[-1]
        tree = best_first(log_probs.view(shape), ids.view(shape), self._budget)
        return tree_verify_input(batch, tree.tokens, tree.parents.tolist(), self.depth, self._target_worker)
