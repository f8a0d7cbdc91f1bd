"""Builds both drafters from their checkpoints."""

from __future__ import annotations

from typing import Any, NamedTuple

from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.runtime_context import get_parallel, get_spec
from sglang.srt.speculative.draft_worker_common import build_draft_tp_worker
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker
from sglang.srt.speculative.spec_utils import draft_pp_context, draft_tp_context

from whiflash_sglang.algorithm import config_of
from whiflash_sglang.config import AUTO, WhiflashConfig
from whiflash_sglang.drafters.configs import Drafts, read_drafts
from whiflash_sglang.drafters.ddtree import DDTreeDrafter
from whiflash_sglang.drafters.dflash import DFlashDrafter
from whiflash_sglang.drafters.eagle3 import Eagle3Drafter
from whiflash_sglang.drafters.tree_budget import AdaptiveBudget, FixedBudget, TreeBudget
from whiflash_sglang.features import FeatureColumns
from whiflash_sglang.pace import Pace, calibration_file
from whiflash_sglang.vocabulary import TargetVocabulary


class Loaded(NamedTuple):
    """What a worker starts from."""

    config: WhiflashConfig
    drafts: Drafts
    eagle3: Eagle3Drafter
    dflash: DFlashDrafter
    pace: Pace | None  # where the tree's budget adapts


def load_drafters(server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> Loaded:
    """Load the EAGLE-3 and the DFlash draft (as DDTree in that pair) beside a loaded target.

    Both were checked when the arguments were read.
    """
    config = config_of(server_args)
    drafts = read_drafts(resolving_view(server_args), config)
    dflash, eagle3 = drafts.dflash, drafts.eagle3
    union = drafts.captured_layers
    hidden_size = target_worker.model_runner.model_config.hidden_size

    eagle_worker = EagleDraftWorker(server_args, gpu_id, nccl_port, target_worker)
    eagle_columns = FeatureColumns(eagle3.target_layer_ids, union, hidden_size)
    dflash_worker = _dflash_worker(config, server_args, gpu_id, nccl_port, target_worker, eagle_worker)
    dflash_columns = FeatureColumns(dflash.target_layer_ids, union, hidden_size)
    vocabulary = TargetVocabulary(target_worker.model_runner.model)
    parts = dflash_worker, target_worker, dflash, dflash_columns, vocabulary
    pace = _pace(config, target_worker.model_runner)
    block = (
        DDTreeDrafter(*parts, budget=_budget(config, pace)) if config.tree_budgets else DFlashDrafter(*parts)
    )
    return Loaded(config, drafts, Eagle3Drafter(eagle_worker, target_worker, eagle_columns), block, pace)


def _pace(config: WhiflashConfig, runner: Any) -> Pace | None:
    if config.ddtree_tree_budget != AUTO:
        return None
    file = calibration_file(config.calibration, runner) if get_parallel().tp_rank == 0 else None
    return Pace(DDTreeDrafter.name, file)


def _budget(config: WhiflashConfig, pace: Pace | None) -> TreeBudget:
    return FixedBudget(config.tree_budgets[0]) if pace is None else AdaptiveBudget(config.tree_budgets, pace)


def _dflash_worker(
    config: WhiflashConfig,
    server_args: Any,
    gpu_id: int,
    nccl_port: int,
    target_worker: Any,
    eagle_worker: EagleDraftWorker,
) -> Any:
    """SGLang builds a draft from the process-wide draft path; this one's is put there meanwhile."""
    with (
        get_spec().override(
            speculative_draft_model_path=config.dflash_draft,
            speculative_draft_model_revision=config.dflash_draft_revision or "main",
        ),
        draft_pp_context(),
        draft_tp_context(eagle_worker.parallel_layout),
    ):
        bundle = build_draft_tp_worker(
            server_args=server_args,
            gpu_id=gpu_id,
            nccl_port=nccl_port,
            target_model_config=target_worker.model_runner.model_config,
            algo_label="WHIFLASH",
            random_seed=target_worker.random_seed,
        )
    return bundle.draft_worker
