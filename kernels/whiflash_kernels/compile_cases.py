"""What :mod:`whiflash_kernels.compile_report` compiles: each launcher, called with tensors that hold no data.

The launchers themselves choose block sizes and warps, so what is compiled is what runs.
Shapes are those of serving, each variant of each kernel, and the smallest and largest blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from whiflash_kernels import (
    accept_gather,
    ddtree_build,
    kv_only,
    router_mlp,
    row_entropy,
    tree_build,
    tree_verify_greedy,
    tree_verify_sample,
)

MODULES = (
    tree_build,
    tree_verify_greedy,
    tree_verify_sample,
    ddtree_build,
    router_mlp,
    row_entropy,
    accept_gather,
    kv_only,
)
VOCABULARY = 151_936

Call = tuple[str, Callable[..., Any], tuple[Any, ...]]  # what it shows, launcher, arguments


def calls() -> list[Call]:
    """Calls that between them launch every kernel of the package."""
    return [*_tree_calls(), *_sample_calls(), *_ddtree_calls(), *_router_calls(), *_row_calls()]


def _empty(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _bf16(*shape: int) -> torch.Tensor:
    return _empty(*shape, dtype=torch.bfloat16)


def _float(*shape: int) -> torch.Tensor:
    return _empty(*shape, dtype=torch.float32)


def _tree_calls() -> list[Call]:
    tree = [_empty(16, 61) for _ in range(4)]
    return [
        *((f"n {n}", tree_build.tree_build_triton, (_empty(16, n - 1),)) for n in (1, 16, 61, 513)),
        ("n 61", tree_verify_greedy.tree_verify_greedy_triton, (*tree, 8)),
        ("n 1", tree_verify_greedy.tree_verify_greedy_triton, (*(_empty(1, 1) for _ in range(4)), 0)),
    ]


def _sample_calls() -> list[Call]:
    links, per_request, keys = [_empty(16, 61)] * 2, _float(16), (_empty(16), _empty(16, 61))
    filters = {"": (None, None, None), ", filtered": (_empty(16), per_request, per_request)}
    return [
        (
            f"{str(dtype).removeprefix('torch.')}{name}",
            tree_verify_sample.tree_verify_sample_triton,
            (_empty(16, 61), _empty(976, VOCABULARY, dtype=dtype), *links, per_request, *chosen, *keys, 8),
        )
        for dtype in (torch.bfloat16, torch.float32)
        for name, chosen in filters.items()
    ]


def _ddtree_calls() -> list[Call]:
    logits = _bf16(16, 15, VOCABULARY)
    return [(f"budget {b}", ddtree_build.ddtree_build_triton, (logits, b)) for b in (1, 32, 128, 512)]


def _router_calls() -> list[Call]:
    def mlp(rows: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        shapes = ((512, 4096), (512,), (1, 512), (1,))
        return _bf16(rows, 4096), *(_empty(*shape, dtype=dtype) for shape in shapes)

    index, lens = _empty(64, 9, dtype=torch.int32), _empty(64, dtype=torch.int32)
    return [
        *((f"bf16, rows {n}", router_mlp.router_mlp_triton, mlp(n, torch.bfloat16)) for n in (9, 61, 1024)),
        *((f"fp32, rows {n}", router_mlp.router_mlp_triton, mlp(n, torch.float32)) for n in (9, 1024)),
        ("bs 64", router_mlp.router_gather_triton, (_float(576), index, lens)),
    ]


def _row_calls() -> list[Call]:
    """Entropy of rows, moves of rows, and the K/V path of rows."""
    buffers = (_bf16(64, 64, 24_576), _empty(64, 64), _empty(64, 64))
    put = (*buffers, _empty(16), _empty(16), _bf16(16, 9, 24_576), _empty(16, 9), _empty(16))
    pool = _bf16(65_536, 8, 128)
    rows = (_empty(512), _empty(512), pool, pool)
    kv = (_bf16(512, 2048), _bf16(128), 1e-6, _float(4096, 128), *rows)
    return [
        ("rows 1", row_entropy.row_entropy_triton, (_bf16(1, VOCABULARY), None)),
        ("rows 4096", row_entropy.row_entropy_triton, (_bf16(4096, VOCABULARY), None)),
        ("rows chosen", row_entropy.row_entropy_triton, (_bf16(976, VOCABULARY), _empty(16))),
        ("with lengths", accept_gather.pending_put_triton, put),
        ("all rows", accept_gather.pending_put_triton, (*put[:-1], None)),
        ("rows 512", accept_gather.pending_take_triton, (*buffers[:2], _empty(512), _empty(512))),
        ("rows 512", accept_gather.kv_move_triton, (pool, _empty(512), _empty(512))),
        ("k-norm", kv_only.kv_only_triton, kv),
        ("no k-norm", kv_only.kv_only_triton, (kv[0], None, *kv[2:])),
        ("H 4096", kv_only.fused_norm_triton, (_bf16(512, 4096), _bf16(4096), 1e-6)),
    ]
