"""One attention backend and one set of graphs per verify width, swapped by reference.

SGLang's GPU backends read the verify width from the process-wide config when
they are built, and its graph runner captures one width. A round of another
width on the wrong backend gets wrong metadata without an error, so each width
gets its own. After the idea of SGLang's ``adaptive_runtime_state``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, check_cuda_graph_backend
from sglang.srt.model_executor.runner import DecodeCudaGraphRunner
from sglang.srt.runtime_context import get_spec

from whiflash_sglang.drafters.base import VerifyShape

logger = logging.getLogger(__name__)


@dataclass
class _Runtime:
    attn_backend: Any
    graph_runner: Any


class VerifyRuntimes:
    """The target's runtimes by verify shape; exactly one, that of shape ``active``, is the target's."""

    active: VerifyShape

    def __init__(self, target_runner: Any) -> None:
        self._runner = target_runner
        self._by_shape: dict[VerifyShape, _Runtime] = {}
        self.eager_rounds = 0  # rounds that found no captured graph on a device with graphs

    def adopt(self, shape: VerifyShape) -> None:
        """Take over the runtime that SGLang built itself, for the process-wide shape."""
        self._by_shape[shape] = _Runtime(self._runner.attn_backend, self._runner.decode_cuda_graph_runner)
        self.active = shape

    def build(self, shape: VerifyShape) -> None:
        """Build the runtime of another shape, with SGLang's own constructors."""
        if shape in self._by_shape:
            return
        runner = self._runner
        workspace = runner.init_new_workspace
        with get_spec().override(
            speculative_num_draft_tokens=shape.width,
            speculative_eagle_topk=shape.topk,
            speculative_num_steps=max(shape.depth, 1),
        ):
            try:
                backend = runner._get_attention_backend(init_new_workspace=True)
            finally:
                runner.init_new_workspace = workspace
            graphs = self._capture(backend, shape) if _graphs_enabled(runner) else None
        self._by_shape[shape] = _Runtime(backend, graphs)

    def activate(self, shape: VerifyShape) -> None:
        """Make the shape's runtime the target's."""
        runtime = self._by_shape[shape]
        self._runner.attn_backend = runtime.attn_backend
        self._runner.decode_cuda_graph_runner = runtime.graph_runner
        self.active = shape

    def count(self, ran_graph: bool) -> None:
        """Note whether a round replayed a graph; the first that did not, where one exists, is logged."""
        if ran_graph or self._runner.decode_cuda_graph_runner is None:
            return
        self.eager_rounds += 1
        if self.eager_rounds == 1:
            logger.warning("A WHIFLASH verify ran without a CUDA graph (batch larger than captured).")

    def _capture(self, backend: Any, shape: VerifyShape) -> Any:
        return DecodeCudaGraphRunner(
            self._runner,
            attn_backend=backend,
            speculative_num_steps=max(shape.depth, 1),
            speculative_num_draft_tokens=shape.width,
        )


def _graphs_enabled(runner: Any) -> bool:
    return runner.device != "cpu" and not check_cuda_graph_backend(Phase.DECODE, Backend.DISABLED)
