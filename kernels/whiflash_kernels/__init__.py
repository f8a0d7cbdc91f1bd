"""Device kernels of a WHIFLASH round, usable without SGLang: they import torch and triton alone.

One op per file: ``X`` runs ``X_triton``, the launcher of the Triton kernels, on CUDA
tensors and ``X_ref``, plain torch, elsewhere.

    tree_build          a tree's mask, depths and links from its parents
    tree_verify_greedy  the drafted path that the target's argmax follows
    tree_verify_sample  the same for tokens drawn from the target's filtered law
    ddtree_build        the most probable prefixes of a drafted block, as a tree
    router_mlp          the neural router's scalar
    row_entropy         entropy and best probability of logits rows
    accept_gather       committed rows into and out of the pending ones; K/V rows between slots
    kv_only             k-norm, RoPE and paged write of context K/V

``python -m whiflash_kernels.compile_report`` compiles all without a GPU,
``python -m whiflash_kernels.bench`` measures on one. No kernel has run on a GPU yet.
"""
