"""What :mod:`whiflash_kernels.bench` runs: each op at the shapes of serving, with the bytes it has to move.

The sizes are those of Qwen3: 151,936 ids, hidden states of 4,096, 8 K/V heads of
128, six captured layers. Inputs are random and made anew for every use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from whiflash_kernels import accept_gather, accept_gather_ref, kv_only, kv_only_ref, router_mlp, row_entropy
from whiflash_kernels.ddtree_build import ddtree_build_triton
from whiflash_kernels.ddtree_build_ref import ddtree_build_ref
from whiflash_kernels.router_mlp_ref import router_gather_ref, router_mlp_ref
from whiflash_kernels.row_entropy_ref import row_entropy_ref
from whiflash_kernels.tree_build import tree_build_triton
from whiflash_kernels.tree_build_ref import tree_build_ref
from whiflash_kernels.tree_verify_greedy import tree_verify_greedy_triton
from whiflash_kernels.tree_verify_greedy_ref import tree_verify_greedy_ref
from whiflash_kernels.tree_verify_sample import tree_verify_sample_triton
from whiflash_kernels.tree_verify_sample_ref import tree_verify_sample_ref

BF16 = torch.bfloat16
VOCABULARY = 151936


@dataclass(frozen=True)
class Case:
    """One op at one shape.

    Attributes:
        make: a device to fresh random arguments.
        bytes_moved: what the op must read and write at least.
        written: places of the arguments that the op writes to.
        tolerance: largest absolute and relative difference from the reference.
        loops: the reference loops in Python, so compiling it says nothing.
    """

    op: str
    shape: str
    make: Callable[[str], tuple[Any, ...]]
    kernel: Callable[..., Any]
    reference: Callable[..., Any]
    bytes_moved: int
    written: tuple[int, ...] = ()
    tolerance: float = 0.0
    loops: bool = False


def cases() -> list[Case]:
    """Every op at its shapes, each op's most telling shape first."""
    return [
        *(tree_build_case(bs, n) for bs, n in ((16, 61), (1, 61), (64, 16))),
        *(greedy_case(bs, n) for bs, n in ((16, 61), (1, 61), (64, 16))),
        *(sample_case(bs, n, filtered=f) for bs, n, f in ((4, 16, False), (1, 61, False), (4, 16, True))),
        *(ddtree_case(bs, budget) for bs, budget in ((4, 32), (1, 32), (4, 128))),
        *(router_mlp_case(rows) for rows in (61, 16, 1024)),
        router_gather_case(64, 9),
        *(entropy_case(n) for n in (61, 1, 512)),
        *(put_case(n, rows) for n, rows in ((16, 9), (1, 9), (64, 16))),
        *(take_case(n) for n in (512, 16)),
        *(move_case(n) for n in (512, 9)),
        *(kv_case(n, norm=norm) for n, norm in ((512, True), (9, True), (512, False))),
        *(norm_case(n) for n in (512, 9)),
    ]


def _parents(bs: int, n: int, device: str) -> torch.Tensor:
    """Of each node but the root, any node before it."""
    before = torch.arange(1, n, device=device)
    return (torch.rand(bs, n - 1, device=device) * before).long().minimum(before - 1)


def tree_build_case(bs: int, n: int) -> Case:
    """Random trees of ``n`` nodes."""
    written = bs * n * (n + 4 * -(-n // 32) + 4 * 8)
    return Case(
        "tree_build",
        f"bs {bs}, n {n}",
        lambda device: (_parents(bs, n, device),),
        tree_build_triton,
        tree_build_ref,
        written + bs * (n - 1) * 8,
        loops=True,
    )


def greedy_case(bs: int, n: int, max_depth: int = 8) -> Case:
    """Random trees over four tokens, so that some drafts are accepted."""

    def make(device: str) -> tuple[Any, ...]:
        candidates, target = torch.randint(0, 4, (2, bs, n), device=device)
        return candidates, target, *tree_build_ref(_parents(bs, n, device))[4:], max_depth

    return Case(
        "tree_verify_greedy",
        f"bs {bs}, n {n}",
        make,
        tree_verify_greedy_triton,
        tree_verify_greedy_ref,
        bs * (4 * n * 8 + 4 * (max_depth + 1) + 12),
        loops=True,
    )


def sample_case(bs: int, n: int, *, filtered: bool, vocabulary: int = VOCABULARY) -> Case:
    """Random trees whose nodes are likely draws of their parents; ``filtered``: top-k 50 and top-p 0.95."""

    def make(device: str) -> tuple[Any, ...]:
        parents = _parents(bs, n, device)
        candidates = torch.randint(0, vocabulary, (bs, n), device=device)
        logits = torch.randn(bs, n, vocabulary, device=device)
        logits[torch.arange(bs, device=device)[:, None], parents, candidates[:, 1:]] = 12.0
        filters = (torch.full((bs,), 50, device=device), torch.full((bs,), 0.95, device=device), None)
        seeds = torch.randint(0, 2**40, (bs,), device=device)
        positions = torch.randint(0, 4096, (bs, n), device=device)
        return (
            candidates,
            logits.to(BF16),
            *tree_build_ref(parents)[4:],
            torch.full((bs,), 0.8, device=device),
            *(filters if filtered else (None, None, None)),
            seeds,
            positions,
            8,
        )

    return Case(
        "tree_verify_sample",
        f"bs {bs}, n {n}" + (", filtered" if filtered else ""),
        make,
        tree_verify_sample_triton,
        tree_verify_sample_ref,
        bs * n * vocabulary * 2,
        loops=True,
    )


def ddtree_case(bs: int, budget: int, depth: int = 15, vocabulary: int = VOCABULARY) -> Case:
    """Blocks of random float32 logits, in which no two are likely to be equal."""
    return Case(
        "ddtree_build",
        f"bs {bs}, budget {budget}",
        lambda device: (4 * torch.randn(bs, depth, vocabulary, device=device), budget),
        ddtree_build_triton,
        ddtree_build_ref,
        bs * depth * vocabulary * 4,
        tolerance=1e-5,
        loops=True,
    )


def router_mlp_case(rows: int, in_size: int = 4096, width: int = 512, dtype: torch.dtype = BF16) -> Case:
    """The router of the model cards."""

    def make(device: str) -> tuple[Any, ...]:
        w1 = torch.randn(width, in_size, device=device) / in_size**0.5
        w2 = torch.randn(1, width, device=device) / width**0.5
        hidden, b1, b2 = (torch.randn(*size, device=device) for size in ((rows, in_size), (width,), (1,)))
        return tuple(t.to(dtype) for t in (hidden, w1, b1, w2, b2))

    return Case(
        "router_mlp",
        f"rows {rows}, H {in_size}, W {width}",
        make,
        router_mlp.router_mlp_triton,
        router_mlp_ref,
        (rows + width) * in_size * dtype.itemsize + 4 * rows,
        tolerance=1e-3,
    )


def router_gather_case(bs: int, steps: int) -> Case:
    """Every request has accepted between nothing and all."""

    def make(device: str) -> tuple[Any, ...]:
        index = torch.randint(0, bs * steps, (bs, steps), device=device, dtype=torch.int32)
        lens = torch.randint(0, steps + 1, (bs,), device=device, dtype=torch.int32)
        index[torch.arange(steps, device=device) >= lens[:, None]] = -1
        return torch.randn(bs * steps, device=device), index, lens

    moved = 16 * bs
    shape = f"bs {bs}, steps {steps}"
    return Case("router_gather", shape, make, router_mlp.router_gather_triton, router_gather_ref, moved)


def entropy_case(n: int, vocabulary: int = VOCABULARY) -> Case:
    """All rows of bfloat16 logits."""
    return Case(
        "row_entropy",
        f"rows {n}, V {vocabulary}",
        lambda device: ((4 * torch.randn(n, vocabulary, device=device)).to(BF16),),
        row_entropy.row_entropy_triton,
        row_entropy_ref,
        n * (2 * vocabulary + 8),
        tolerance=1e-4,
    )


def _pending(
    slots: int, bound: int, size: int, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    features = torch.randn(slots, bound, size, device=device, dtype=BF16)
    return features, *torch.randint(0, 99, (2, slots, bound), device=device)


def put_case(n: int, rows: int, size: int = 6 * 4096, slots: int = 64, bound: int = 64) -> Case:
    """A round's commit; every row counts."""

    def make(device: str) -> tuple[Any, ...]:
        chosen = torch.randperm(slots, device=device)[:n]
        first = torch.randint(0, 4096, (n,), device=device)
        features = torch.randn(n, rows, size, device=device, dtype=BF16)
        tokens = torch.randint(0, VOCABULARY, (n, rows), device=device)
        lens = torch.full((n,), rows, device=device)
        return *_pending(slots, bound, size, device), chosen, first, features, tokens, lens

    return Case(
        "pending_put",
        f"requests {n}, rows {rows}, F {size}",
        make,
        accept_gather.pending_put_triton,
        accept_gather_ref.pending_put_ref,
        n * rows * (4 * size + 24) + 24 * n,
        written=(0, 1, 2),
    )


def take_case(n: int, size: int = 6 * 4096, slots: int = 64, bound: int = 64) -> Case:
    """The rows of a catch-up."""

    def make(device: str) -> tuple[Any, ...]:
        chosen = torch.randint(0, slots, (n,), device=device)
        return *_pending(slots, bound, size, device)[:2], chosen, torch.randint(0, 4096, (n,), device=device)

    return Case(
        "pending_take",
        f"rows {n}, F {size}",
        make,
        accept_gather.pending_take_triton,
        accept_gather_ref.pending_take_ref,
        n * (4 * size + 32),
    )


def move_case(n: int, slots: int = 65536, heads: int = 8, d: int = 128) -> Case:
    """A cycle: every row that is read is also written."""

    def make(device: str) -> tuple[Any, ...]:
        target = torch.randperm(slots, device=device)[:n]
        return torch.randn(slots, heads, d, device=device, dtype=BF16), target.roll(1), target

    return Case(
        "kv_move",
        f"rows {n}, {heads} x {d}",
        make,
        accept_gather.kv_move_triton,
        accept_gather_ref.kv_move_ref,
        n * (4 * heads * d + 16),
        written=(0,),
    )


def kv_case(n: int, *, norm: bool, heads: int = 8, d: int = 128, slots: int = 65536) -> Case:
    """One DFlash layer (with k-norm) or EAGLE-3's (without)."""

    def make(device: str) -> tuple[Any, ...]:
        weight = torch.rand(d, device=device).to(BF16) if norm else None
        angles = torch.rand(4096, d // 2, device=device) * 6.28
        return (
            torch.randn(n, 2 * heads * d, device=device, dtype=BF16),
            weight,
            1e-6,
            torch.cat([angles.cos(), angles.sin()], dim=-1),
            torch.randint(0, 4096, (n,), device=device),
            torch.randperm(slots, device=device)[:n],
            *torch.zeros(2, slots, heads, d, device=device, dtype=BF16),
        )

    return Case(
        "kv_only",
        f"rows {n}, {heads} x {d}" + (", k-norm" if norm else ""),
        make,
        kv_only.kv_only_triton,
        kv_only_ref.kv_only_ref,
        n * (8 * heads * d + 4 * d + 16),
        written=(6, 7),
        tolerance=1e-2,
    )


def norm_case(n: int, size: int = 4096) -> Case:
    """The norm in front of the projection."""
    return Case(
        "fused_norm",
        f"rows {n}, H {size}",
        lambda device: (*(torch.randn(*s, device=device, dtype=BF16) for s in ((n, size), (size,))), 1e-6),
        kv_only.fused_norm_triton,
        kv_only_ref.fused_norm_ref,
        4 * n * size,
        tolerance=1e-2,
    )
