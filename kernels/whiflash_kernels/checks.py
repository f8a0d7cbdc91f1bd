"""Argument checks shared by the launchers."""

from __future__ import annotations

import torch

INTEGERS = (torch.int32, torch.int64)
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def require(condition: bool, message: str) -> None:
    """Raise ValueError(message) unless the condition holds."""
    if not condition:
        raise ValueError(message)


def require_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError, with both shapes, unless the tensor has this shape."""
    require(tuple(tensor.shape) == shape, f"{name}: shape {tuple(tensor.shape)}, expected {shape}")


def require_dtype(name: str, tensor: torch.Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    """Raise ValueError unless the tensor's dtype is one of these."""
    require(tensor.dtype in dtypes, f"{name}: dtype {tensor.dtype}, expected one of {list(dtypes)}")


def require_rank(name: str, tensor: torch.Tensor, rank: int) -> None:
    """Raise ValueError, with the shape, unless the tensor has this many dimensions."""
    require(tensor.dim() == rank, f"{name}: shape {tuple(tensor.shape)}, expected {rank} dimensions")


def require_unit_stride(name: str, tensor: torch.Tensor) -> None:
    """Raise ValueError, with the strides, unless neighbours along the last dimension are adjacent."""
    adjacent = tensor.shape[-1] <= 1 or tensor.stride(-1) == 1
    require(adjacent, f"{name}: strides {tuple(tensor.stride())}, expected 1 in the last dimension")


def require_same_device(**tensors: torch.Tensor) -> None:
    """Raise ValueError, naming each tensor's device, unless all are on one device."""
    devices = {name: str(tensor.device) for name, tensor in tensors.items()}
    require(len(set(devices.values())) <= 1, f"tensors on different devices: {devices}")


def require_tree(
    candidates: torch.Tensor, next_token: torch.Tensor, next_sibling: torch.Tensor, max_depth: int
) -> None:
    """Raise ValueError unless these are a tree's tokens and links, int64 [bs, n] with n > 0."""
    links = {"candidates": candidates, "next_token": next_token, "next_sibling": next_sibling}
    require_rank("candidates", candidates, 2)
    for name, tensor in links.items():
        require_shape(name, tensor, tuple(candidates.shape))
        require_dtype(name, tensor, (torch.int64,))
    require_same_device(**links)
    require(candidates.shape[1] > 0, f"candidates: shape {tuple(candidates.shape)} holds no root")
    require(max_depth >= 0, f"max_depth: {max_depth} is negative")
