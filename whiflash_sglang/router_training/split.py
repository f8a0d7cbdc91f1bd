"""Training and validation parts that share no prompt."""

from __future__ import annotations

import random

import torch

from whiflash_sglang.router_training.records import Records


def split_by_prompt(records: Records, fraction: float, seed: int) -> tuple[Records, Records]:
    """Training and validation records.

    About ``fraction`` of each category's prompts go to validation, at least one
    where a category has two or more. Where no category has two, categories are
    ignored. The same records and seed give the same split.

    Raises:
        ValueError: fewer than two prompts have records.
    """
    groups = [group for group in _by_category(records).values() if len(group) > 1]
    if not groups:
        everything = records.prompt.unique().tolist()
        if len(everything) < 2:
            raise ValueError(
                f"--data has records of {len(everything)} prompt(s); training and validation need one each"
            )
        groups = [everything]
    chooser = random.Random(seed)
    held_out = torch.zeros(len(records.prompts), dtype=torch.bool)
    for group in groups:
        count = min(max(round(len(group) * fraction), 1), len(group) - 1)
        held_out[chooser.sample(group, count)] = True
    validation = held_out[records.prompt]
    return records.select(~validation), records.select(validation)


def _by_category(records: Records) -> dict[str, list[int]]:
    """category -> indices of its prompts that have records, rising."""
    groups: dict[str, list[int]] = {}
    for prompt in records.prompt.unique().tolist():
        groups.setdefault(records.categories[prompt], []).append(prompt)
    return groups
