"""A real SGLang engine whose WHIFLASH worker is watched and steered from the test.

The engine's scheduler process is SGLang's own; ``Probe`` wraps methods of the
worker that lives in it. A control file, read again whenever it changes, sets

* ``pattern``: the drafters of successive rounds ("E", "D", "P" for plain, cycled);
* ``truth``: {prompt: continuation}; drafts become the true continuation, each
  token corrupted with probability ``corruption``, so that every accept count occurs.

Both draft K/V pools start as NaN: a read of a slot that nothing wrote shows at
once. The log file gets one line per round and request with what was drafted.
"""

from __future__ import annotations

import json
import random
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine import tiny

LETTERS = {"E": "eagle3", "D": "dflash", "P": "plain"}
TREE = {"speculative_num_steps": 3, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8}
CHAIN = {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}
COMMON = {
    "device": "cpu",
    "dtype": "float32",
    "log_level": "error",
    "max_running_requests": 8,
    "max_total_tokens": 6000,
    "context_length": 512,
    "random_seed": 1,
    "disable_overlap_schedule": True,
}
GREEDY = {"temperature": 0, "ignore_eos": True}


class Lab:
    """The test's side: sends requests, writes the control file, reads the log."""

    def __init__(self, engine: Any, folder: Path) -> None:
        self.engine, self.folder = engine, folder

    def generate(self, prompts: list[list[int]], **params: Any) -> list[dict]:
        """Decode prompts of token ids together; each result is SGLang's dict."""
        return self.engine.generate(input_ids=prompts, sampling_params=GREEDY | params)

    def ids(self, prompts: list[list[int]], **params: Any) -> list[list[int]]:
        """Output ids of prompts decoded together."""
        return [result["output_ids"] for result in self.generate(prompts, **params)]

    def steer(
        self,
        pattern: str = "ED",
        truth: dict | None = None,
        corruption: float = 0.0,
        seed: int = 0,
        **switches: Any,
    ) -> None:
        """Set what the next rounds do; ``truth`` maps prompt tuples to continuations.

        Switches: ``fault`` names one of :mod:`engine.faults`, ``eager`` brings both
        drafters up to date in every round, ``dump`` keeps the drafter's K/V, see :meth:`draft_kv`.
        """
        known = {json.dumps(list(prompt)): ids for prompt, ids in (truth or {}).items()}
        control = {"pattern": pattern, "truth": known, "corruption": corruption, "seed": seed, **switches}
        staged = self.folder / "control.tmp"
        staged.write_text(json.dumps(control))
        staged.rename(self.folder / "control.json")

    def rounds(self) -> list[dict]:
        """The log so far; emptied by the call."""
        log = self.folder / "log.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def draft_kv(self, drafter: str) -> dict:
        """The drafter's K/V of the first request in its last round, before it drafted.

        ``context`` (the last token is the bonus token), and per layer (K, V), [committed, heads, d] each.
        """
        return torch.load(self.folder / f"{drafter}.pt")

    def unaccounted_slots(self) -> list[int]:
        """KV slots that are neither free nor cached nor held by a live request, in a round of a small request.

        Zero when nothing leaked. The second number is the same count after three
        slots were taken and not yet given back: the check itself, checked.
        """
        (self.folder / "report").touch()
        self.generate([[5, 6, 7]], max_new_tokens=2)
        return json.loads((self.folder / "pool.json").read_text())


@contextmanager
def whiflash(folder: Path, router: str = "alternate", faulty: bool = False, **arguments: Any):
    """A lab around a WHIFLASH engine of the tiny models."""
    from sglang.srt.entrypoints.engine import Engine
    from sglang.srt.managers.scheduler import run_scheduler_process

    from whiflash_sglang.engine import server_args

    whiflash_options = {"eagle_draft": str(tiny.eagle3()), "router": router} | arguments.pop("whiflash", {})
    args = server_args(
        whiflash=whiflash_options,
        **{
            **COMMON,
            **TREE,
            "model_path": str(tiny.target()),
            "speculative_draft_model_path": str(tiny.dflash()),
            **arguments,
        },
    )

    class ProbedEngine(Engine):
        run_scheduler_process_func = staticmethod(
            partial(run_probed, run_scheduler_process, str(folder), faulty)
        )

    engine = ProbedEngine(server_args=args)
    try:
        yield Lab(engine, folder)
    finally:
        engine.shutdown()


@contextmanager
def plain(**arguments: Any):
    """An engine of the tiny target without speculation."""
    import sglang

    engine = sglang.Engine(**{**COMMON, "model_path": str(tiny.target()), **arguments})
    try:
        yield Lab(engine, Path())
    finally:
        engine.shutdown()


def assert_plain_text(results: list[dict], prompts: list[list[int]], truth: dict) -> None:
    """Each result is the beginning of plain decoding's text."""
    for prompt, result in zip(prompts, results, strict=True):
        output = result["output_ids"]
        assert output == truth[tuple(prompt)][: len(output)]


# -- the scheduler process's side ---------------------------------------------------------


def run_probed(run: Any, folder: str, faulty: bool, *args: Any, **kwargs: Any) -> None:
    """In the scheduler process: install the probe, then run SGLang's own function."""
    from sglang.srt.plugins import load_plugins

    load_plugins()
    from whiflash_sglang.worker import WhiflashWorker

    probe = Probe(Path(folder))
    probe.install(WhiflashWorker)
    if faulty:
        from engine import faults

        faults.install(lambda: probe.control)
    run(*args, **kwargs)


class Probe:
    """Wraps the worker: scripted routing, oracle drafts, NaN pools, a log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stamp = None
        self.control: dict = {"pattern": "", "truth": {}, "corruption": 0.0, "seed": 0}
        self.round = 0
        self.coin = random.Random(0)
        self.mask_backend: Any = None

    def install(self, worker_class: type) -> None:
        """Wrap the methods of a worker class; called before a worker exists."""
        probe = self
        self.watch_masks()
        alloc, route, draft_round, prefill, whole_round = (
            worker_class.alloc_memory_pool,
            worker_class._route,
            worker_class._verify,
            worker_class._prefill,
            worker_class._round,
        )

        def alloc_with_nan(worker: Any, *args: Any, **kwargs: Any) -> None:
            alloc(worker, *args, **kwargs)
            for drafter in (worker.eagle3, worker.dflash):
                _fill_nan(drafter.runner.token_to_kv_pool)

        def watched_prefill(worker: Any, batch: Any, on_publish: Any) -> Any:
            probe.reload()
            return prefill(worker, batch, on_publish)

        def scripted_route(worker: Any, batch: Any) -> Any:
            probe.report_pool(worker, batch)
            chosen = route(worker, batch)
            pattern = probe.control["pattern"]
            if not pattern or chosen is worker.plain:
                return chosen
            letter = pattern[probe.round % len(pattern)]
            probe.round += 1
            return getattr(worker, LETTERS[letter])

        def verify(worker: Any, batch: Any, drafter: Any, grammar_barrier: Any) -> Any:
            probe.log(worker, batch, drafter)
            probe.cheat(batch, drafter)
            return draft_round(worker, batch, drafter, grammar_barrier)

        catch_up = worker_class._catch_up

        def eager_catch_up(worker: Any, batch: Any, drafter: Any, laps: Any) -> list[int]:
            if probe.control.get("eager"):
                for each in worker._drafters.values():
                    if each is not drafter:
                        worker.ledger.catch_up(batch, each)
            rows = catch_up(worker, batch, drafter, laps)
            if probe.control.get("dump"):
                probe.dump(batch, drafter)
            return rows

        worker_class._catch_up = eager_catch_up

        def checked_round(worker: Any, batch: Any, *args: Any) -> Any:
            worker.ledger.check_integrity(batch)
            return whole_round(worker, batch, *args)

        worker_class._round = checked_round
        worker_class.alloc_memory_pool = alloc_with_nan
        worker_class._route = scripted_route
        worker_class._verify = verify
        worker_class._prefill = watched_prefill

    def watch_masks(self) -> None:
        """Remember whose mask the latest verify input was laid into."""
        from sglang.srt.layers.attention.base_attn_backend import AttentionBackend

        probe, verify_mask = self, AttentionBackend.verify_mask

        def watched(backend: Any) -> Any:
            probe.mask_backend = backend
            return verify_mask.fget(backend)

        AttentionBackend.verify_mask = property(watched)

    def reload(self) -> None:
        """Read the control file again where it changed."""
        path = self.folder / "control.json"
        if not path.exists():
            return
        stamp = path.stat().st_mtime_ns
        if stamp != self.stamp:
            self.stamp, self.round = stamp, 0
            self.control = json.loads(path.read_text())
            self.coin = random.Random(self.control["seed"])

    def report_pool(self, worker: Any, batch: Any) -> None:
        """Write pool.json when asked; see :meth:`Lab.unaccounted_slots`."""
        asked = self.folder / "report"
        if asked.exists():
            asked.unlink()
            before, taken = _unaccounted(batch), batch.token_to_kv_pool_allocator.alloc(3 * _page_size(batch))
            counts = [before, _unaccounted(batch) // _page_size(batch)]
            batch.token_to_kv_pool_allocator.free(taken)
            (self.folder / "pool.json").write_text(json.dumps(counts))

    def log(self, worker: Any, batch: Any, drafter: Any) -> None:
        """One line per request: context, drafter, and the first level (or the chain) it drafted."""
        tokens = batch.spec_info.draft_token.view(len(batch.reqs), -1).tolist()
        depths = (batch.spec_info.positions.view(len(batch.reqs), -1) - batch.seq_lens.view(-1, 1)).tolist()
        scores = worker.signals.scores.read(batch.req_pool_indices).tolist()
        with (self.folder / "log.jsonl").open("a") as log:
            for i, req in enumerate(batch.reqs):
                entry = {
                    "rid": req.rid,
                    "context": list(req.origin_input_ids) + list(req.output_ids),
                    "outputs": len(req.output_ids),
                    "drafter": drafter.name,
                    "slot": int(batch.req_pool_indices[i]),
                    "batch": len(batch.reqs),
                    "score": scores[i],
                    "mask_is_the_verifys": self.mask_backend
                    is worker._target_worker.model_runner.attn_backend,
                    "work": {name: vars(work) for name, work in worker.ledger.work.items()},
                    "tokens": tokens[i],
                    "depths": depths[i],
                    "next_token": batch.spec_info.retrieve_next_token[i].tolist(),
                    "next_sibling": batch.spec_info.retrieve_next_sibling[i].tolist(),
                }
                log.write(json.dumps(entry) + "\n")

    def dump(self, batch: Any, drafter: Any) -> None:
        """See :meth:`Lab.draft_kv`."""
        req, length = batch.reqs[0], int(batch.seq_lens[0])
        slots = batch.req_to_token_pool.req_to_token[req.kv.req_pool_idx, :length].long()
        pool = drafter.runner.token_to_kv_pool
        layers = [(k[slots], v[slots]) for k, v in zip(pool.k_buffer, pool.v_buffer, strict=True)]
        context = list(req.origin_input_ids) + list(req.output_ids)
        torch.save({"context": context, "layers": layers}, self.folder / f"{drafter.name}.pt")

    def cheat(self, batch: Any, drafter: Any) -> None:
        """Put the true continuation on one path of each tree, corrupted by a coin."""
        info = batch.spec_info
        width = info.draft_token_num
        tokens = info.draft_token.view(-1, width)
        for i, req in enumerate(batch.reqs):
            truth = self.control["truth"].get(json.dumps(list(req.origin_input_ids)))
            if truth is None:
                continue
            ahead = truth[len(req.output_ids) :]
            node = 0
            for true_token in ahead:
                children = _children(info, i, node)
                if not children:
                    break
                node = self.coin.choice(children)
                wrong = self.coin.random() < self.control["corruption"]
                tokens[i, node] = (true_token + 1) % 40000 if wrong else true_token


def _children(info: Any, i: int, node: int) -> list[int]:
    found, child = [], int(info.retrieve_next_token[i, node])
    while child != -1:
        found.append(child)
        child = int(info.retrieve_next_sibling[i, child])
    return found


def _page_size(batch: Any) -> int:
    return batch.token_to_kv_pool_allocator.page_size


def _unaccounted(batch: Any) -> int:
    from sglang.srt.managers.scheduler_components.pool_stats_observer import kv_private_tokens

    allocator, cache = batch.token_to_kv_pool_allocator, batch.tree_cache
    held = sum(kv_private_tokens(req.kv, allocator.page_size) for req in batch.reqs)
    return (
        allocator.size - allocator.available_size() - cache.evictable_size() - cache.protected_size() - held
    )


def _fill_nan(pool: Any) -> None:
    for buffers in (pool.k_buffer, pool.v_buffer):
        for buffer in buffers:
            buffer.fill_(float("nan"))
