"""CPU versions of the ``sgl_kernel`` ops on SGLang's speculative path, in plain torch.

Names, argument order and in-place outputs are those of SGLang 0.5.23's call
sites (``sglang/kernels/ops/speculative/{spec_tree,eagle,cache_locs}.py``,
``kernels/ops/kvcache/cache_move.py``, ``srt/mem_cache/allocation.py``); the
meaning is that of the Triton or CUDA kernel of the same name.
"""

from __future__ import annotations

import ctypes

import numpy as np
import torch

_QLEN_ONLY = 1  # sglang.kernels.ops.speculative.spec_tree.TreeMaskMode.QLEN_ONLY


def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Pack ``req_to_token[r, start:end]`` of every request into out_cache_loc, int64 [sum(end - start)]."""
    filled = 0
    for row, start, end in zip(
        req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True
    ):
        out_cache_loc[filled : filled + end - start] = req_to_token[row, start:end]
        filled += end - start


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Write packed slots into ``req_to_token[r, start:end]`` of every request."""
    taken = 0
    for row, start, end in zip(
        req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True
    ):
        req_to_token[row, start:end] = out_cache_loc[taken : taken + end - start].to(req_to_token.dtype)
        taken += end - start


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    num_cols: int,
) -> None:
    """The ``topk * num_cols`` slots after each request's length, packed into out_cache_loc, int64."""
    width = topk * num_cols
    columns = seq_lens.to(torch.int64).unsqueeze(1) + torch.arange(width)
    slots = req_to_token[req_pool_indices.to(torch.int64).unsqueeze(1), columns]
    out_cache_loc.copy_(slots.reshape(-1))


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor,
    accept_lens: torch.Tensor,
    bonus_tokens: torch.Tensor,
    accept_stride: int,
) -> None:
    """bonus_tokens[b] = the last accepted token of request b; accept_lens counts it."""
    rows = accept_tokens.view(-1, accept_stride)
    last = (accept_lens.to(torch.int64) - 1).unsqueeze(1)
    bonus_tokens.copy_(rows.gather(1, last).squeeze(1))


def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor, out_cache_loc: torch.Tensor, accept_out_cache_loc: torch.Tensor
) -> None:
    """Pack the slots of the accepted nodes (accept_index != -1) to the front, in order."""
    accepted = accept_index[accept_index != -1].to(torch.int64)
    accept_out_cache_loc[: accepted.numel()] = out_cache_loc[accepted]


def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor, strides: torch.Tensor, tgt_loc: torch.Tensor, src_loc: torch.Tensor
) -> None:
    """Copy row ``src_loc[i]`` to ``tgt_loc[i]`` in every K and V buffer.

    Args:
        data_ptrs: uint64 [buffers], base address of each buffer.
        strides: int64 [buffers], bytes of one row.
        tgt_loc, src_loc: int64 [n]; every source is read before a target is written.
    """
    if tgt_loc.numel() == 0:
        return
    target, source = tgt_loc.numpy(), src_loc.numpy()
    rows = int(max(target.max(), source.max())) + 1
    for address, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        raw = (ctypes.c_uint8 * (rows * stride)).from_address(address)
        buffer = np.frombuffer(raw, dtype=np.uint8).reshape(rows, stride)
        buffer[target] = buffer[source]


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    seq_lens: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrieve_index: torch.Tensor,
    retrieve_next_token: torch.Tensor,
    retrieve_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    num_verify_tokens: int,
    tree_mask_mode: int,
) -> None:
    """Tree metadata from EAGLE's candidate bookkeeping.

    Args:
        parent_list: int64 [bs, 1 + topk * (depth - 1) or less], candidate index of each expansion's node.
        selected_index: int64 [bs, num_verify_tokens - 1], ascending candidate indices of the tree's nodes.
        tree_mask: bool [bs * n * n], written: row i may see column j.
        positions: int64 [bs * n], written.
        retrieve_*: int64 [bs, n], pre-filled with -1, written.

    Raises:
        NotImplementedError: a mask layout other than QLEN_ONLY.
    """
    if int(tree_mask_mode) != _QLEN_ONLY:
        raise NotImplementedError(f"tree_mask_mode={tree_mask_mode}: the CPU builds QLEN_ONLY masks only")
    bs, n = seq_lens.numel(), num_verify_tokens
    masks = tree_mask[: bs * n * n].view(bs, n, n)
    for b in range(bs):
        parents = _node_parents(parent_list[b].tolist(), selected_index[b].tolist(), topk)
        _write_tree(
            parents,
            masks[b],
            retrieve_next_token[b],
            retrieve_next_sibling[b],
        )
        retrieve_index[b] = torch.arange(b * n, (b + 1) * n)
        node_depth = masks[b].sum(dim=1) - 1
        positions[b * n : (b + 1) * n] = seq_lens[b] + node_depth


def _node_parents(parent_list: list[int], selected: list[int], topk: int) -> list[int]:
    """Parent node (0 is the root) of nodes 1.. from EAGLE's candidate indices."""
    node_of = {candidate: node + 1 for node, candidate in enumerate(selected)}
    parents = []
    for candidate in selected:
        expansion = candidate // topk
        parents.append(0 if expansion == 0 else node_of[parent_list[expansion]])
    return parents


def _write_tree(
    parents: list[int], mask: torch.Tensor, next_token: torch.Tensor, next_sibling: torch.Tensor
) -> None:
    """Ancestor mask bool [n, n] and first-child / next-sibling links int64 [n] of one tree."""
    n = len(parents) + 1
    rows = np.zeros((n, n), dtype=bool)
    rows[0, 0] = True
    first_child, sibling = [-1] * n, [-1] * n
    for node in range(1, n):
        rows[node] = rows[parents[node - 1]]
        rows[node, node] = True
    for node in range(n - 1, 0, -1):
        parent = parents[node - 1]
        sibling[node] = first_child[parent]
        first_child[parent] = node
    mask.copy_(torch.from_numpy(rows))
    next_token.copy_(torch.tensor(first_child))
    next_sibling.copy_(torch.tensor(sibling))


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Walk each tree along the target's predictions.

    Args:
        predicts: int32 [bs * n], written at the accepted nodes.
        accept_index: int32 [bs, depth + 1], pre-filled with -1, written with node indices.
        accept_token_num: int32 [bs], written: accepted drafts, without the bonus token.
        candidates, target_predict: int64 [bs, n].
    """
    nodes = zip(
        candidates.tolist(),
        retrive_index.tolist(),
        retrive_next_token.tolist(),
        retrive_next_sibling.tolist(),
        target_predict.tolist(),
        strict=True,
    )
    max_path = accept_index.shape[1]
    for b, (drafted, index, first_child, sibling, predicted) in enumerate(nodes):
        node, path = 0, [0]
        while len(path) < max_path:
            child = first_child[node]
            while child != -1 and drafted[child] != predicted[node]:
                child = sibling[child]
            if child == -1:
                break
            node = child
            path.append(node)
        accept_index[b, : len(path)] = torch.tensor([index[node] for node in path], dtype=accept_index.dtype)
        predicts[[index[node] for node in path]] = torch.tensor(
            [predicted[node] for node in path], dtype=predicts.dtype
        )
        accept_token_num[b] = len(path) - 1


def rotate_input_ids_cpu(*args: object) -> None:
    """Asked for at import by SGLang's multi-layer EAGLE, which does not run here.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("multi-layer EAGLE is not supported on the CPU")


def build_draft_decode_metadata_cpu(*args: object) -> None:
    """Asked for by SGLang's intel_amx backend, which does not run here.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("the intel_amx attention backend needs sgl_kernel's CPU build")
