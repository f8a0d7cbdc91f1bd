"""In an arm's process: conversations through its engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from transformers import AutoTokenizer

from whiflash_sglang.bench.answers import Answer, Request
from whiflash_sglang.bench.prompts_file import Conversation
from whiflash_sglang.metrics import META_KEY


class Converser:
    """An engine, warmed up, and its tokenizer."""

    def __init__(self, engine: Any, model_path: str) -> None:
        self.engine = engine
        self._tokenizer = AutoTokenizer.from_pretrained(model_path)
        ids = self._tokenizer.encode("A first request warms everything up.")
        engine.generate(input_ids=ids, sampling_params={"max_new_tokens": 8, "temperature": 0})
        engine.flush_cache()

    def converse(self, group: Sequence[Conversation], request: Request) -> tuple[float, list[Answer]]:
        """All conversations of a group at once; the seconds it took, and the answers."""

        async def together() -> list[list[Answer]]:
            return await asyncio.gather(*[self._talk(c, request) for c in group])

        started = time.perf_counter()
        answered = self.engine.loop.run_until_complete(together())
        return time.perf_counter() - started, [a for answers in answered for a in answers]

    def two_best_logprobs(self, prefix: list[int]) -> tuple[float, float]:
        """Log-probabilities of the two best tokens after ``prefix``."""
        result = self.engine.generate(
            input_ids=prefix,
            sampling_params={"max_new_tokens": 1, "temperature": 0},
            return_logprob=True,
            top_logprobs_num=2,
        )
        best, second = result["meta_info"]["output_top_logprobs"][0][:2]
        return float(best[0]), float(second[0])

    async def _talk(self, conversation: Conversation, request: Request) -> list[Answer]:
        """Ask the turns in order; a failed turn ends its conversation."""
        messages: list[dict[str, str]] = []
        answers: list[Answer] = []
        for number, turn in enumerate(conversation.turns):
            messages.append({"role": "user", "content": turn})
            ids = render(self._tokenizer, messages, request.enable_thinking)
            one_turn = len(conversation.turns) == 1
            name = conversation.id if one_turn else f"{conversation.id}/{number + 1}"
            answer = await self._ask(Answer(name, conversation.category, ids), request)
            answers.append(answer)
            if answer.error is not None:
                break
            messages.append({"role": "assistant", "content": answer.text})
        return answers

    async def _ask(self, answer: Answer, request: Request) -> Answer:
        started = time.perf_counter()
        try:
            result = await self.engine.async_generate(
                input_ids=answer.prompt_ids, sampling_params=request.sampling_params()
            )
            meta = result["meta_info"]
            reason = meta["finish_reason"] or {}
            if reason.get("type") == "abort":
                answer.error = str(reason.get("message", "aborted"))
            answer.output_ids, answer.text = result["output_ids"], result["text"]
            answer.count(meta.get(META_KEY, ()), meta["completion_tokens"])
            answer.sglang_accept_length = meta.get("spec_accept_length")
        except Exception as error:
            answer.error = f"{type(error).__name__}: {error}"
        answer.seconds = time.perf_counter() - started
        return answer


def render(tokenizer: Any, messages: list[dict[str, str]], enable_thinking: bool) -> list[int]:
    """Token ids of a conversation that the model is to continue."""
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=enable_thinking
    )
    return tokenizer.encode(text, add_special_tokens=False)
