"""EAGLE-3's draft and its training loss: several draft steps unrolled, each fed with its own outputs.

Index i pairs the target's features at position i with token i + 1. At step s it
stands for position i + s: it reads token i + 1 + s and its own output of step
s - 1, attends to the true rows 0..i and to its own rows of steps 1..s, and
predicts token i + 2 + s.

Source: Li et al., "EAGLE-3" (2025), training-time test.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from whiflash_sglang.drafter_training.layers import (
    MLP,
    Projections,
    RMSNorm,
    Rotary,
    by_kv_head,
    soft_cross_entropy,
)
from whiflash_sglang.drafter_training.states import Text

_STEP_DECAY = 0.8


class _Layer(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        hidden, eps = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm = RMSNorm(hidden, eps)
        self.hidden_norm = RMSNorm(hidden, eps)
        self.self_attn = Projections(config, 2 * hidden)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        self.mlp = MLP(hidden, config["intermediate_size"])


class Eagle3Draft(nn.Module):
    """Parameters under the checkpoint's names: fc, midlayer, norm, lm_head.

    Args:
        config: the draft's config.json.
        d2t: int64 [draft_vocab], target id minus draft id.
        target_embedding, target_head: the target's, [vocab, hidden]; frozen.
    """

    def __init__(
        self, config: dict, d2t: torch.Tensor, target_embedding: torch.Tensor, target_head: torch.Tensor
    ) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        layers = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
        self.fc = nn.Linear(len(layers) * hidden, hidden, bias=False)
        self.midlayer = _Layer(config)
        self.norm = RMSNorm(hidden, config["rms_norm_eps"])
        self.lm_head = nn.Linear(hidden, config["draft_vocab_size"], bias=False)
        self.config, self.layers = config, layers
        self.draft_ids = torch.arange(len(d2t)) + d2t
        self._embedding, self._head = target_embedding, target_head[self.draft_ids]
        self._kv_heads = config["num_key_value_heads"]
        self._rotary = Rotary(config["head_dim"], config["rope_parameters"]["rope_theta"])

    def start_from(self, target: dict[str, torch.Tensor], layer: int) -> None:
        """Begin as the target's own ``layer`` reading the last tap, with the target's head."""
        hidden, own = self.config["hidden_size"], self.midlayer
        prefix = f"model.layers.{layer}."
        with torch.no_grad():
            self.fc.weight.zero_()
            self.fc.weight[:, -hidden:] = torch.eye(hidden)
            for name in ("q_proj", "k_proj", "v_proj"):
                weight = getattr(own.self_attn, name).weight
                weight.normal_(0, 0.01)
                weight[:, hidden:] = target[f"{prefix}self_attn.{name}.weight"]
            own.self_attn.o_proj.weight.copy_(target[f"{prefix}self_attn.o_proj.weight"])
            own.hidden_norm.weight.copy_(target[f"{prefix}input_layernorm.weight"])
            own.post_attention_layernorm.weight.copy_(target[f"{prefix}post_attention_layernorm.weight"])
            for name in ("gate_proj", "up_proj", "down_proj"):
                getattr(own.mlp, name).weight.copy_(target[f"{prefix}mlp.{name}.weight"])
            self.norm.weight.copy_(target["model.norm.weight"])
            self.lm_head.weight.copy_(self._head)

    def loss(self, batch: list[Text], columns: torch.Tensor, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss over the answers' rows and steps, and which drafts were right, bool [rows, steps].

        Args:
            batch: sequences.
            columns: of their taps, see :meth:`TargetStates.columns`.
            steps: draft steps to unroll.
        """
        plan = _Rows(batch)
        features = torch.cat([s.taps[:-1].index_select(1, columns) for s in batch])
        laws = self._target_laws(batch)
        fused = self.fc(features.to(self.fc.weight.dtype))
        keys, values = self._context(fused, plan)
        hidden, total = fused[plan.queries], torch.zeros(())
        own: list[tuple[torch.Tensor, torch.Tensor]] = []
        right = torch.zeros(len(plan.queries), steps, dtype=torch.bool)
        for step in range(steps):
            hidden = self._step(hidden, plan, step, keys, values, own)
            live = plan.has_label(step)
            logits = self.lm_head(self.norm(hidden[live]))
            law = laws[plan.law_rows(step)[live]]
            total = total + _STEP_DECAY**step * soft_cross_entropy(logits, law).mean()
            right[live, step] = self.draft_ids[logits.argmax(-1)] == plan.read_ids(step + 1)[live]
        return total, right

    def _target_laws(self, batch: list[Text]) -> torch.Tensor:
        """The target's law over the draft vocabulary after every position from the prompt's end on."""
        with torch.no_grad():
            final = torch.cat([s.final[s.prompt_len :] for s in batch])
            return (final @ self._head.T.to(final.dtype)).softmax(-1)

    def _normed(self, ids: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        embedded = self._embedding[ids].to(hidden.dtype)
        return torch.cat([self.midlayer.input_layernorm(embedded), self.midlayer.hidden_norm(hidden)], dim=-1)

    def _context(self, fused: torch.Tensor, plan: _Rows) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [rows, kv_heads, d] of every true row."""
        attn, normed = self.midlayer.self_attn, self._normed(plan.next_ids, fused)
        keys = self._rotary(attn.heads(attn.k_proj(normed)), plan.positions)
        return keys, attn.heads(attn.v_proj(normed))

    def _step(
        self,
        hidden: torch.Tensor,
        plan: _Rows,
        step: int,
        keys: torch.Tensor,
        values: torch.Tensor,
        own: list,
    ) -> torch.Tensor:
        """Output [queries, hidden] of one draft step; appends the step's own keys and values to ``own``."""
        attn = self.midlayer.self_attn
        normed = self._normed(plan.read_ids(step), hidden)
        here = plan.positions[plan.queries] + step
        q = self._rotary(attn.heads(attn.q_proj(normed)), here)
        if step > 0:
            own.append((self._rotary(attn.heads(attn.k_proj(normed)), here), attn.heads(attn.v_proj(normed))))
        mixed = torch.cat(
            [
                self._attend(q[rows], keys[true], values[true], first, [(k[rows], v[rows]) for k, v in own])
                for rows, true, first in plan.spans
            ]
        )
        hidden = hidden + attn.o_proj(mixed)
        return hidden + self.midlayer.mlp(self.midlayer.post_attention_layernorm(hidden))

    def _attend(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, first: int, own: list
    ) -> torch.Tensor:
        """[rows, heads * d]; row r sees true rows up to ``first + r`` and its own earlier steps."""
        grouped = by_kv_head(q, self._kv_heads)
        scores = grouped @ keys.permute(1, 2, 0).unsqueeze(1)
        hidden_rows = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(first + 1)
        parts = [scores.masked_fill(hidden_rows, float("-inf"))]
        parts += [(grouped * k.permute(1, 0, 2).unsqueeze(1)).sum(-1, keepdim=True) for k, _ in own]
        weights = torch.cat(parts, dim=-1).float().softmax(-1).to(values.dtype)
        true = keys.shape[0]
        out = weights[..., :true] @ values.permute(1, 0, 2).unsqueeze(1)
        for i, (_, v) in enumerate(own):
            out = out + weights[..., true + i : true + i + 1] * v.permute(1, 0, 2).unsqueeze(1)
        return out.permute(2, 0, 1, 3).flatten(1)


class _Rows:
    """Row bookkeeping of a packed batch: sequence after sequence, no padding."""

    def __init__(self, batch: list[Text]) -> None:
        next_ids, positions, queries, spans = [], [], [], []
        row = query = 0
        for s in batch:
            true = len(s.ids) - 1
            first = s.prompt_len - 1  # reads the answer's first token
            next_ids.append(s.ids[1:])
            positions.append(torch.arange(true))
            queries.append(torch.arange(row + first, row + true))
            spans.append((slice(query, query + true - first), slice(row, row + true), first))
            row, query = row + true, query + true - first
        self.next_ids, self.positions = torch.cat(next_ids), torch.cat(positions)
        self.queries, self.spans = torch.cat(queries), spans
        lengths = torch.tensor([rows.stop - rows.start for rows, _, _ in spans])
        self._left = torch.cat([torch.arange(n - 1, -1, -1) for n in lengths.tolist()])
        self._number = torch.arange(query)

    def read_ids(self, step: int) -> torch.Tensor:
        """The token each query reads at a step; anything past the end, where no label is either."""
        return self.next_ids[(self.queries + step).clamp(max=len(self.next_ids) - 1)]

    def has_label(self, step: int) -> torch.Tensor:
        """Queries whose predicted token is still in the text; bool [queries]."""
        return self._left > step

    def law_rows(self, step: int) -> torch.Tensor:
        """Row of the target's law that a query's step must match; int64 [queries]."""
        return (self._number + step).clamp(max=len(self._number) - 1)


def draft_config(base: dict[str, Any], layers: list[int], draft_vocab: int) -> dict[str, Any]:
    """config.json of an EAGLE-3 draft that reads the outputs after ``layers``."""
    return base | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": draft_vocab,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": layers},
    }
