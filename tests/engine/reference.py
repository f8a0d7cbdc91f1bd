"""What each drafter must draft after a given context, from scratch in plain torch (float32).

No cache, no batch, no state: the target's hidden states come from Hugging Face's
model of the whole context, and the drafters are re-implemented below from their
definitions. A stale state, a wrong feature column or a shifted position in the
engine shows as another draft.
"""

from __future__ import annotations

import json
import random
from functools import cached_property
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

from best_first import best_first
from engine import tiny


class Reference:
    """Drafts of the tiny EAGLE-3 and DFlash drafters for contexts that end with the bonus token."""

    @cached_property
    def target(self):
        return AutoModelForCausalLM.from_pretrained(tiny.target(), dtype=torch.float32).eval()

    @cached_property
    def eagle3(self) -> Draft:
        return Draft(tiny.eagle3())

    @cached_property
    def dflash(self) -> Draft:
        return Draft(tiny.dflash())

    @torch.no_grad()
    def layer_outputs(self, tokens: list[int], layers: list[int]) -> torch.Tensor:
        """[len(tokens), layers * hidden]: outputs after the named layers, in the given order."""
        states = self.target(torch.tensor([tokens]), output_hidden_states=True).hidden_states
        return torch.cat([states[layer + 1][0] for layer in layers], dim=-1)

    @torch.no_grad()
    def final_hidden(self, tokens: list[int]) -> torch.Tensor:
        """The target's hidden state [hidden] after the final norm, at the last of ``tokens``."""
        return self.target.model(torch.tensor([tokens])).last_hidden_state[0, -1]

    @torch.no_grad()
    def entropy(self, tokens: list[int]) -> float:
        """Entropy in nats of the target's law of the token after ``tokens``."""
        log_p = self.target(torch.tensor([tokens])).logits[0, -1].log_softmax(dim=-1)
        return float(-(log_p.exp() * log_p).sum())

    @torch.no_grad()
    def eagle3_first_level(self, context: list[int], k: int) -> list[int]:
        """The k best next-next tokens by EAGLE-3 after a context whose last token is the bonus token."""
        draft, rows = self.eagle3, len(context) - 1
        hidden, q, k_heads, v = self._eagle3_layer_input(context)
        causal = torch.ones(rows, rows, dtype=torch.bool).tril()
        out = hidden + attention(q, k_heads, v, causal) @ draft["midlayer.self_attn.o_proj.weight"].T
        eps = draft.config["rms_norm_eps"]
        normed = rms_norm(out, draft["midlayer.post_attention_layernorm.weight"], eps)
        out = out + draft.mlp("midlayer", normed)
        logits = rms_norm(out[-1], draft["norm.weight"], eps) @ draft["lm_head.weight"].T
        best = logits.topk(k).indices
        return (best + draft["d2t"].long()[best]).tolist()

    def eagle3_kv(self, context: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(K, V) of its layer at all committed positions, [n, heads, d] each."""
        _, _, k, v = self._eagle3_layer_input(context)
        return [(k, v)]

    @torch.no_grad()
    def _eagle3_layer_input(self, context: list[int]) -> tuple[torch.Tensor, ...]:
        """Fused features, and rotated Q, K and V of every committed position."""
        draft, committed = self.eagle3, context[:-1]
        layers = draft.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
        hidden = self.layer_outputs(committed, layers) @ draft["fc.weight"].T
        embeds = self.target.model.embed_tokens(torch.tensor(context[1:]))
        eps = draft.config["rms_norm_eps"]
        normed = torch.cat(
            [
                rms_norm(embeds, draft["midlayer.input_layernorm.weight"], eps),
                rms_norm(hidden, draft["midlayer.hidden_norm.weight"], eps),
            ],
            dim=-1,
        )
        positions = torch.arange(len(committed))
        q, k, v = draft.qkv("midlayer", normed)
        return hidden, rope(q, positions, draft.theta), rope(k, positions, draft.theta), v

    def dflash_block(self, context: list[int]) -> list[int]:
        """The block's drafted tokens after a context whose last token is the bonus token."""
        return self.dflash_logits(context).argmax(dim=-1).tolist()

    @torch.no_grad()
    def dflash_kv(self, context: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(K, V) of every layer at all committed positions, [n, heads, d] each."""
        draft, committed = self.dflash, context[:-1]
        features = self.layer_outputs(committed, draft.config["dflash_config"]["target_layer_ids"])
        eps = draft.config["rms_norm_eps"]
        shared = rms_norm(features @ draft["fc.weight"].T, draft["hidden_norm.weight"], eps)
        before, found = torch.arange(len(committed)), []
        for i in range(draft.config["num_hidden_layers"]):
            _, k, v = draft.qkv(f"layers.{i}", shared)
            k = rms_norm(k, draft[f"layers.{i}.self_attn.k_norm.weight"], eps)
            found.append((rope(k, before, draft.theta), v))
        return found

    @torch.no_grad()
    def dflash_logits(self, context: list[int]) -> torch.Tensor:
        """[block - 1, vocab] of the block after a context whose last token is the bonus token."""
        draft, committed = self.dflash, context[:-1]
        block_size, eps = draft.config["block_size"], draft.config["rms_norm_eps"]
        masks = [draft.config["dflash_config"]["mask_token_id"]] * (block_size - 1)
        hidden = self.target.model.embed_tokens(torch.tensor([context[-1], *masks]))
        here = torch.arange(len(committed), len(committed) + block_size)
        for i, (context_k, context_v) in enumerate(self.dflash_kv(context)):
            layer = f"layers.{i}"
            normed = rms_norm(hidden, draft[f"{layer}.input_layernorm.weight"], eps)
            q, k, v = draft.qkv(layer, normed)
            q = rope(rms_norm(q, draft[f"{layer}.self_attn.q_norm.weight"], eps), here, draft.theta)
            k = rope(rms_norm(k, draft[f"{layer}.self_attn.k_norm.weight"], eps), here, draft.theta)
            keys, values = torch.cat([context_k, k]), torch.cat([context_v, v])
            hidden = hidden + attention(q, keys, values, None) @ draft[f"{layer}.self_attn.o_proj.weight"].T
            normed = rms_norm(hidden, draft[f"{layer}.post_attention_layernorm.weight"], eps)
            hidden = hidden + draft.mlp(layer, normed)
        return rms_norm(hidden[1:], draft["norm.weight"], eps) @ self.target.lm_head.weight.T


class Draft:
    """A draft checkpoint: its config and float32 weights by name."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        weights = load_file(folder / "model.safetensors")
        self.weights = {name: w.float() if w.is_floating_point() else w for name, w in weights.items()}
        self.theta = self.config["rope_parameters"]["rope_theta"]

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.weights[name]

    def qkv(self, layer: str, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Projections by head: [rows, heads, head_dim] each."""
        dim = self.config["head_dim"]
        return tuple(
            (x @ self[f"{layer}.self_attn.{name}_proj.weight"].T).unflatten(-1, (-1, dim)) for name in "qkv"
        )

    def mlp(self, layer: str, x: torch.Tensor) -> torch.Tensor:
        gate = F.silu(x @ self[f"{layer}.mlp.gate_proj.weight"].T)
        return (gate * (x @ self[f"{layer}.mlp.up_proj.weight"].T)) @ self[f"{layer}.mlp.down_proj.weight"].T


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + eps) * weight


def rope(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """Neox-style rotation of x [rows, heads, d]."""
    half = x.shape[-1] // 2
    angles = positions[:, None].float() * theta ** (-torch.arange(half).float() / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """[rows, heads * d] of q [rows, heads, d] over k, v [n, kv_heads, d]."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), v).flatten(1)


def assert_drafts_are_the_references(rounds: list[dict], reference: Reference, sample: int = 60) -> None:
    """Every logged draft (or a seeded sample of them) is what the reference drafts from that context."""
    assert rounds
    for entry in random.Random(3).sample(rounds, min(sample, len(rounds))):
        if entry["drafter"] == "ddtree":
            assert_ddtree_is_the_references(entry, reference)
        elif entry["drafter"] == "dflash":
            assert entry["tokens"][1:] == reference.dflash_block(entry["context"]), entry
        elif entry["drafter"] == "eagle3":
            level = zip(entry["tokens"], entry["depths"], strict=True)
            drafted = {token for token, depth in level if depth == 1}
            expected = set(reference.eagle3_first_level(entry["context"], len(drafted)))
            assert drafted == expected, entry


def assert_ddtree_is_the_references(entry: dict, reference: Reference) -> None:
    """The drafted prefixes are the most probable ones, up to near-ties in the reference's probabilities."""
    log_probs = reference.dflash_logits(entry["context"]).log_softmax(dim=-1)
    drafted: dict[tuple[int, ...], float] = {}
    open_nodes: list[tuple[int, tuple[int, ...], float]] = [(0, (), 0.0)]
    while open_nodes:
        node, path, above = open_nodes.pop()
        child = entry["next_token"][node]
        while child != -1:
            token = entry["tokens"][child]
            drafted[*path, token] = above + float(log_probs[len(path), token])
            open_nodes.append((child, (*path, token), drafted[*path, token]))
            child = entry["next_sibling"][child]
    budget = len(entry["tokens"]) - 1
    assert len(drafted) == budget  # every node another prefix
    best = best_first([row.topk(budget).values.tolist() for row in log_probs], budget)
    assert sorted(drafted.values(), reverse=True) == pytest.approx([n.log_prob for n in best], abs=1e-3)


def assert_scores_are_the_references(rounds: list[dict], reference: Reference, threshold: float) -> None:
    """Every logged entropy score is (entropy of the law that the bonus token came from) - threshold."""
    assert rounds
    for entry in rounds:
        entropy = reference.entropy(entry["context"][:-1])
        assert entry["score"] == pytest.approx(entropy - threshold, abs=1e-3), entry
