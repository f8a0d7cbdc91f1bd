"""Verify at temperature > 0: sample every node from the target's law, accept the child equal to it.

A drafted token is accepted exactly when the target itself sampled it, so the
output follows the target's law whatever was drafted: temperature, top-k, top-p,
min-p and custom logit processors included. For distinct children of one node
this accepts as often as residual sampling of deterministic drafts does. With a
seed the sample of a position depends on (seed, position) only, not on the tree.

SGLang's own tree sampler has no CPU version and leaves out min-p and custom
logit processors, so this one is used on every device.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.kernels.ops.sampling import softmax
from sglang.kernels.ops.speculative.spec_tree import verify_tree_greedy_func
from sglang.srt.layers.sampler import (
    apply_custom_logit_processor,
    sampling_from_probs_torch,
    top_k_top_p_min_p_sampling_from_probs_torch,
)
from sglang.srt.runtime_context import get_parallel, get_server_args
from sglang.srt.sampling.penaltylib.repetition_penalty import apply_scaling_penalties
from sglang.srt.utils.async_probe import sanitize_nan_logits

from whiflash_sglang.algorithm import config_of
from whiflash_sglang.verify_kernels import Verified, verify_with_triton


def sample_verify(
    original: Any, verify_input: Any, batch: Any, logits_output: Any, grammar_mask: Any = None, **kwargs: Any
) -> Verified:
    """Around SGLang's ``eagle_sample`` of a WHIFLASH batch: takes over what is not plainly greedy.

    Returns:
        predict int32 [requests * width], accept lengths int32 [requests] with the
        bonus token, accept index int32 [requests, depth + 1].
    """
    info, own_kernels = batch.sampling_info, config_of(get_server_args()).verify_kernels == "triton"
    if batch.forward_mode.is_idle() or (_is_plainly_greedy(info) and not own_kernels):
        return original(verify_input, batch, logits_output, grammar_mask, **kwargs)
    width = verify_input.draft_token_num
    logits = logits_output.next_token_logits
    sanitize_nan_logits(logits, "verify: target model logits")
    _adjust(logits, info, width, grammar_mask)
    if own_kernels:
        return _as_rank_0(verify_with_triton(verify_input, logits, info))
    sampled = sample_rows(logits, info, width, verify_input.positions)
    return _as_rank_0(_walk(verify_input, sampled.view(-1, width)))


def sample_rows(logits: torch.Tensor, info: Any, width: int, positions: torch.Tensor) -> torch.Tensor:
    """One token per verify row from its request's filtered law.

    Args:
        logits: [requests * width, vocab], already adjusted.
        info: SGLang's SamplingBatchInfo, one row per request.
        positions: int64 [requests * width], each row's input position.

    Returns:
        int64 [requests * width].
    """
    if info.is_all_greedy:
        return logits.argmax(dim=-1)

    def per_row(values: torch.Tensor | None) -> torch.Tensor | None:
        return None if values is None else values.repeat_interleave(width, dim=0)

    probs = softmax(logits, temperatures=per_row(info.temperatures))
    seed = per_row(info.sampling_seed)
    if info.need_top_k_sampling or info.need_top_p_sampling or info.need_min_p_sampling:
        tokens = top_k_top_p_min_p_sampling_from_probs_torch(
            probs,
            per_row(info.top_ks),
            per_row(info.top_ps),
            per_row(info.min_ps),
            info.need_min_p_sampling,
            seed,
            positions,
        )
    else:
        tokens = sampling_from_probs_torch(probs, sampling_seed=seed, positions=positions)
    return tokens.to(torch.int64)


def _is_plainly_greedy(info: Any) -> bool:
    return info.is_all_greedy and not info.has_custom_logit_processor


def _adjust(logits: torch.Tensor, info: Any, width: int, grammar_mask: Any) -> None:
    """Penalties, bias, processors and grammar, in place, in the order of SGLang's samplers."""
    if info.acc_additive_penalties is not None:
        logits.add_(info.acc_additive_penalties.repeat_interleave(width, dim=0))
    if info.acc_scaling_penalties is not None:
        apply_scaling_penalties(logits, info.acc_scaling_penalties.repeat_interleave(width, dim=0))
    if info.logit_bias is not None:
        logits.add_(info.logit_bias.repeat_interleave(width, dim=0))
    if grammar_mask is not None:
        grammar_mask.apply(logits)
    if info.has_custom_logit_processor:
        apply_custom_logit_processor(logits, info, num_tokens_in_batch=width)


def _walk(verify_input: Any, sampled: torch.Tensor) -> Verified:
    """Follow each tree along the sampled tokens int64 [requests, width]."""
    bs, width = sampled.shape
    device = sampled.device
    predict = torch.zeros(bs * width, dtype=torch.int32, device=device)
    accept_index = torch.full((bs, verify_input.max_tree_depth), -1, dtype=torch.int32, device=device)
    accepted = torch.empty(bs, dtype=torch.int32, device=device)
    verify_tree_greedy_func(
        predicts=predict,
        accept_index=accept_index,
        accept_token_num=accepted,
        candidates=verify_input.draft_token.view(bs, width),
        retrieve_index=verify_input.retrieve_index,
        retrieve_next_token=verify_input.retrieve_next_token,
        retrieve_next_sibling=verify_input.retrieve_next_sibling,
        target_predict=sampled,
        topk=verify_input.tree_topk,
    )
    return predict, accepted + 1, accept_index


def _as_rank_0(verified: Verified) -> Verified:
    """Ranks may sample differently: rank 0 decides."""
    group = get_parallel().tp_group
    if group.world_size > 1:
        for tensor in verified:
            group.broadcast(tensor, src=0)
    return verified
