"""DFlash's draft and its training loss: blocks of masks hung at random places of the target's answers.

A block at anchor a reads [token a, mask, mask, ...] at positions a, a + 1, ...;
it sees the target's features before a and, in both directions, itself; mask k
predicts token a + k.

Source: the DFlash model cards and SGLang 0.5.23 ``models/dflash.py``.
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


class _Attention(Projections):
    def __init__(self, config: dict) -> None:
        super().__init__(config, config["hidden_size"])
        self.q_norm = RMSNorm(self.head_dim, config["rms_norm_eps"])
        self.k_norm = RMSNorm(self.head_dim, config["rms_norm_eps"])


class _Layer(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        hidden, eps = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm = RMSNorm(hidden, eps)
        self.self_attn = _Attention(config)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        self.mlp = MLP(hidden, config["intermediate_size"])


class DFlashDraft(nn.Module):
    """Parameters under the checkpoint's names: fc, hidden_norm, layers, norm.

    Args:
        config: the draft's config.json.
        trained_ids: int64 [ids], the target ids whose probabilities are learned; the
            head keeps all, the rest of the vocabulary is sampled in as negatives.
        target_embedding, target_head: the target's, [vocab, hidden]; frozen.
    """

    def __init__(
        self,
        config: dict,
        trained_ids: torch.Tensor,
        target_embedding: torch.Tensor,
        target_head: torch.Tensor,
    ) -> None:
        super().__init__()
        hidden, eps = config["hidden_size"], config["rms_norm_eps"]
        self.layers_read = config["dflash_config"]["target_layer_ids"]
        self.fc = nn.Linear(len(self.layers_read) * hidden, hidden, bias=False)
        self.hidden_norm = RMSNorm(hidden, eps)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RMSNorm(hidden, eps)
        self.config, self.block = config, config["block_size"]
        self._mask_id = config["dflash_config"]["mask_token_id"]
        self._embedding, self._head = target_embedding, target_head
        self._trained = trained_ids
        rest = torch.ones(len(target_head), dtype=torch.bool)
        rest[trained_ids] = False
        self._rest = rest.nonzero().squeeze(-1)
        self._kv_heads = config["num_key_value_heads"]
        self._rotary = Rotary(config["head_dim"], config["rope_parameters"]["rope_theta"])

    def start_from(self, target: dict[str, torch.Tensor], first_layer: int) -> None:
        """Begin as the target's own layers from ``first_layer`` on, reading the last tap."""
        hidden = self.config["hidden_size"]
        with torch.no_grad():
            self.fc.weight.normal_(0, 0.005)
            self.fc.weight[:, -hidden:] += torch.eye(hidden)
            for i, layer in enumerate(self.layers):
                own = dict(layer.named_parameters())
                for name, value in own.items():
                    key = f"model.layers.{first_layer + i}.{name}"
                    if key in target:
                        value.copy_(target[key])
            self.norm.weight.copy_(target["model.norm.weight"])

    def loss(
        self, batch: list[Text], columns: torch.Tensor, anchors: int, decay: float, negatives: int = 1024
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss over blocks, and which drafts were right, bool [blocks, block_size - 1].

        Args:
            batch: sequences.
            columns: of their taps, see :meth:`TargetStates.columns`.
            anchors: blocks per sequence, at most.
            decay: positions weigh exp(-(k - 1) / decay).
            negatives: ids outside ``trained_ids`` drawn for this step.
        """
        blocks = _Blocks(batch, anchors, self.block)
        features = torch.cat([s.taps.index_select(1, columns) for s in batch]).to(self.fc.weight.dtype)
        hidden = self.forward_blocks(features, blocks)
        drafted = hidden.view(-1, self.block, hidden.shape[-1])[:, 1:].flatten(0, 1)
        live = blocks.has_label
        drawn = self._rest[torch.randint(len(self._rest), (negatives,))] if len(self._rest) else self._rest
        ids = torch.cat([self._trained, drawn])
        head = self._head[ids].to(drafted.dtype)
        with torch.no_grad():
            final = torch.cat([s.final for s in batch])[blocks.law_rows[live]]
            law = (final.to(drafted.dtype) @ head.T).softmax(-1)
        logits = drafted[live] @ head.T
        k = torch.arange(self.block - 1).repeat(len(blocks.anchors))[live]
        weight = torch.exp(-k / decay)
        loss = (soft_cross_entropy(logits, law) * weight).sum() / weight.sum()
        right = torch.zeros(len(live), dtype=torch.bool)
        right[live] = ids[logits.argmax(-1)] == blocks.labels[live]
        return loss, right.view(-1, self.block - 1)

    def forward_blocks(self, features: torch.Tensor, blocks: _Blocks) -> torch.Tensor:
        """[blocks * block_size, hidden] after the final norm, from features [rows, layers * hidden]."""
        context = self.hidden_norm(self.fc(features))
        ids = torch.full((len(blocks.anchors), self.block), self._mask_id)
        ids[:, 0] = blocks.first_ids
        hidden = self._embedding[ids.flatten()].to(context.dtype)
        for layer in self.layers:
            hidden = hidden + self._attend(layer, hidden, context, blocks)
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return self.norm(hidden)

    def _attend(
        self, layer: Any, hidden: torch.Tensor, context: torch.Tensor, blocks: _Blocks
    ) -> torch.Tensor:
        attn = layer.self_attn
        normed = layer.input_layernorm(hidden)
        q = self._rotary(attn.q_norm(attn.heads(attn.q_proj(normed))), blocks.positions)
        own_k = self._rotary(attn.k_norm(attn.heads(attn.k_proj(normed))), blocks.positions)
        own_v = attn.heads(attn.v_proj(normed))
        keys = self._rotary(attn.k_norm(attn.heads(attn.k_proj(context))), blocks.context_positions)
        values = attn.heads(attn.v_proj(context))
        mixed = [
            self._attend_sequence(q[rows], own_k[rows], own_v[rows], keys[true], values[true], anchors)
            for rows, true, anchors in blocks.spans
        ]
        return attn.o_proj(torch.cat(mixed))

    def _attend_sequence(self, q, own_k, own_v, keys, values, anchors: torch.Tensor) -> torch.Tensor:
        """[rows, heads * d] of one sequence's blocks: features before the anchor, and the block itself."""
        n, kv, d = len(anchors), self._kv_heads, q.shape[-1]
        grouped = by_kv_head(q, kv)  # [kv, group, rows, d]
        hidden_rows = torch.arange(len(keys)) >= anchors.repeat_interleave(self.block)[:, None]
        before = (grouped @ keys.permute(1, 2, 0).unsqueeze(1)).masked_fill(hidden_rows, float("-inf"))
        blocks_k = own_k.view(n, self.block, kv, d).permute(2, 0, 3, 1).unsqueeze(1)
        blocks_v = own_v.view(n, self.block, kv, d).permute(2, 0, 1, 3).unsqueeze(1)
        blocks_q = grouped.unflatten(2, (n, self.block))
        inside = (blocks_q @ blocks_k).flatten(2, 3)
        weights = torch.cat([before, inside], dim=-1).float().softmax(-1).to(values.dtype)
        out = weights[..., : len(keys)] @ values.permute(1, 0, 2).unsqueeze(1)
        out = out + (weights[..., len(keys) :].unflatten(2, (n, self.block)) @ blocks_v).flatten(2, 3)
        return out.permute(2, 0, 1, 3).flatten(1)


class _Blocks:
    """Where the blocks of a packed batch hang: ``anchors`` random answer tokens of each sequence."""

    def __init__(self, batch: list[Text], anchors: int, block: int) -> None:
        offsets = torch.arange(block)
        self.spans: list[tuple[slice, slice, torch.Tensor]] = []
        first_ids, positions, law_rows, has_label, context_positions, chosen = [], [], [], [], [], []
        labels = []
        row = block_row = 0
        for s in batch:
            length = len(s.ids)
            at = _sample(s.prompt_len, length - 1, anchors)
            rows = at[:, None] + offsets
            first_ids.append(s.ids[at])
            positions.append(rows.flatten())
            predicted = rows[:, 1:]  # token a + k, whose law is at position a + k - 1
            has_label.append((predicted < length).flatten())
            labels.append(s.ids[predicted.clamp(max=length - 1)].flatten())
            law_rows.append((predicted - 1).clamp(max=length - 1).flatten() + row)
            context_positions.append(torch.arange(length))
            self.spans.append((slice(block_row, block_row + rows.numel()), slice(row, row + length), at))
            chosen.append(at)
            row, block_row = row + length, block_row + rows.numel()
        self.anchors, self.first_ids = torch.cat(chosen), torch.cat(first_ids)
        self.positions, self.context_positions = torch.cat(positions), torch.cat(context_positions)
        self.law_rows, self.has_label = torch.cat(law_rows), torch.cat(has_label)
        self.labels = torch.cat(labels)


def _sample(low: int, high: int, count: int) -> torch.Tensor:
    """Up to ``count`` sorted distinct integers of [low, high); at least one."""
    span = max(high - low, 1)
    return (low + torch.randperm(span)[:count]).sort().values


def draft_config(
    base: dict[str, Any],
    layers: list[int],
    *,
    block_size: int,
    num_layers: int,
    mask_token_id: int,
    target_layers: int,
) -> dict[str, Any]:
    """config.json of a DFlash draft that reads the outputs after ``layers``."""
    return base | {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": num_layers,
        "block_size": block_size,
        "num_target_layers": target_layers,
        "dflash_config": {"mask_token_id": mask_token_id, "target_layer_ids": layers},
    }
