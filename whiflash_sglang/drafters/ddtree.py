"""DDTree: DFlash's block, drafted as the tree of its most probable prefixes instead of one chain."""

from __future__ import annotations

from typing import Any

import torch

from whiflash_sglang.drafters.best_first import best_first
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
        ids = ids.view(len(hidden), self.depth, -1)
        trees = [best_first(rows, self._budget) for rows in log_probs.view(ids.shape).tolist()]
        at = torch.tensor([[(node.depth - 1, node.rank) for node in tree] for tree in trees])
        depths, ranks = at.to(ids.device).unbind(-1)
        tokens = ids[torch.arange(len(ids), device=ids.device)[:, None], depths, ranks]
        parents = [[node.parent for node in tree] for tree in trees]
        return tree_verify_input(batch, tokens, parents, self.depth, self._target_worker)
