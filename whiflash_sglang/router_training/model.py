"""The router's network: two layers on the target's final hidden state."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

_BATCH = 8192


class RouterMLP(nn.Module):
    """fc2(GELU(fc1(h))), in float32.

    One output is dAL; two are the acceptance lengths of EAGLE-3 and of the
    other drafter.
    """

    def __init__(self, hidden_size: int, width: int, outputs: int = 1) -> None:
        super().__init__()
        self.fc1 = nn.Linear(hidden_size, width)
        self.fc2 = nn.Linear(width, outputs)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 [n, outputs] for hidden states [n, H] of any floating dtype."""
        return self.fc2(functional.gelu(self.fc1(hidden.float())))

    @torch.no_grad()
    def predict(self, hidden: torch.Tensor) -> torch.Tensor:
        """:meth:`forward` over any number of rows, without gradients; the result is on the CPU."""
        device = self.fc1.weight.device
        return torch.cat([self(rows.to(device)).cpu() for rows in hidden.split(_BATCH)])

    @torch.no_grad()
    def folded(self, mean: torch.Tensor, std: torch.Tensor) -> RouterMLP:
        """The same function of raw hidden states, where this one reads (h - mean) / std.

        Args:
            mean, std: float [H]; the sums are done in float64.
        """
        raw = RouterMLP(self.fc1.in_features, self.fc1.out_features, self.fc2.out_features)
        weight = self.fc1.weight.cpu().double() / std.cpu().double()
        raw.fc1.weight.copy_(weight)
        raw.fc1.bias.copy_(self.fc1.bias.cpu().double() - weight @ mean.cpu().double())
        raw.fc2.load_state_dict(self.fc2.state_dict())
        return raw

    @torch.no_grad()
    def difference(self) -> RouterMLP:
        """The one-output router of a two-output one: its first output minus its second."""
        if self.fc2.out_features != 2:
            return self
        scalar = RouterMLP(self.fc1.in_features, self.fc1.out_features, 1)
        scalar.fc1.load_state_dict(self.fc1.state_dict())
        scalar.fc2.weight.copy_(self.fc2.weight[:1] - self.fc2.weight[1:])
        scalar.fc2.bias.copy_(self.fc2.bias[:1] - self.fc2.bias[1:])
        return scalar

    @torch.no_grad()
    def rounded(self, dtype: torch.dtype) -> RouterMLP:
        """The same network with weights that ``dtype`` holds exactly; they stay float32."""
        copy = RouterMLP(self.fc1.in_features, self.fc1.out_features, self.fc2.out_features)
        copy.load_state_dict({name: w.to(dtype).float() for name, w in self.state_dict().items()})
        return copy


def moments(hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of each column of [n, H], float64 [H]; 1 for columns that do not vary."""
    n = len(hidden)
    mean = sum((rows.double().sum(0) for rows in hidden.split(_BATCH)), torch.zeros(())) / n
    squares = ((rows.double() - mean).square().sum(0) for rows in hidden.split(_BATCH))
    std = (sum(squares, torch.zeros(())) / n).sqrt()
    return mean, torch.where(std > 1e-6 * std.max().clamp(min=1e-30), std, 1.0)
