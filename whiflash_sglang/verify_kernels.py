"""The tree walk of a verify by this package's own kernels, in the shape of SGLang's results."""

from __future__ import annotations

from typing import Any

import torch

from whiflash_kernels.tree_verify_greedy import AcceptedPath, tree_verify_greedy_triton
from whiflash_kernels.tree_verify_sample import tree_verify_sample_triton

Verified = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def verify_with_triton(verify_input: Any, logits: torch.Tensor, info: Any) -> Verified:
    """Walk each tree along the target's tokens: its best ones, or ones drawn from its filtered law.

    Args:
        verify_input: SGLang's EagleVerifyInput.
        logits: [requests * width, vocab], already adjusted.
        info: SGLang's SamplingBatchInfo, one row per request.

    Returns:
        predict int32 [requests * width], accept lengths int32 [requests] with the
        bonus token, accept index int32 [requests, depth + 1].
    """
    bs, width = verify_input.retrieve_next_token.shape
    candidates = verify_input.draft_token.view(bs, width).to(torch.int64)
    links = (
        verify_input.retrieve_next_token.to(torch.int64),
        verify_input.retrieve_next_sibling.to(torch.int64),
    )
    max_depth = verify_input.max_tree_depth - 1
    if info.is_all_greedy:
        best = logits.argmax(dim=-1).view(bs, width)
        path = tree_verify_greedy_triton(candidates, best, *links, max_depth)
    else:
        path = tree_verify_sample_triton(
            candidates,
            logits,
            *links,
            temperatures=info.temperatures.float().flatten(),
            top_ks=info.top_ks if info.need_top_k_sampling else None,
            top_ps=info.top_ps if info.need_top_p_sampling else None,
            min_ps=info.min_ps if info.need_min_p_sampling else None,
            seeds=_seeds(info, bs, logits.device),
            positions=verify_input.positions.view(bs, width).to(torch.int64),
            max_depth=max_depth,
        )
    return _predicted(path, candidates), path.accept_lens, path.accept_index


def _seeds(info: Any, requests: int, device: Any) -> torch.Tensor:
    """Each request's seed, int64 [requests]; fresh ones where SGLang hands none to workers."""
    if info.sampling_seed is not None:
        return info.sampling_seed.to(torch.int64)
    return torch.randint(2**62, (requests,), device=device)


def _predicted(path: AcceptedPath, candidates: torch.Tensor) -> torch.Tensor:
    """int32 [requests * width]: the target's token at every accepted node, 0 elsewhere."""
    bs, steps = path.accept_index.shape
    flat = candidates.flatten()
    nodes = path.accept_index.to(torch.int64)
    after = torch.cat([nodes[:, 1:], nodes.new_full((bs, 1), -1)], dim=1)  # the node that follows, if any
    is_last = torch.arange(steps, device=nodes.device) == path.accept_lens[:, None] - 1
    tokens = torch.where(is_last, path.bonus[:, None], flat[after.clamp(min=0)])
    predict = torch.zeros(flat.shape[0] + 1, dtype=torch.int32, device=nodes.device)
    predict[torch.where(nodes >= 0, nodes, flat.shape[0])] = tokens.to(torch.int32)
    return predict[:-1]
