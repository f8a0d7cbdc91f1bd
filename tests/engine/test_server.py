"""``python -m whiflash_sglang.serve`` behind the official OpenAI client, on the demo."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from openai import BadRequestError, OpenAI

from whiflash_sglang.demo.target import MODEL_NAME
from whiflash_sglang.metrics import META_KEY, Round


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    port = free_port()
    log = (tmp_path_factory.mktemp("server") / "log").open("w")
    server = subprocess.Popen(
        [sys.executable, "-m", "whiflash_sglang.serve", "--demo", "--port", str(port), "--dtype", "float32"],
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, server, log.name)
        yield url
    finally:
        server.terminate()
        server.wait(60)


def _wait(url, server, log):
    for _ in range(240):
        assert server.poll() is None, Path(log).read_text()[-3000:]
        try:
            urllib.request.urlopen(url + "/health_generate", timeout=30)
            return
        except OSError:
            time.sleep(1)
    raise TimeoutError(Path(log).read_text()[-3000:])


@pytest.fixture(scope="module")
def client(base):
    return OpenAI(base_url=base + "/v1", api_key="none")


def chat(client, **options):
    messages = [{"role": "user", "content": "Name three colours."}]
    return client.chat.completions.create(
        model=MODEL_NAME, messages=messages, max_tokens=24, temperature=0, **options
    )


def test_streamed_chunks_join_to_the_whole_answer(client):
    whole = chat(client).choices[0].message.content
    chunks = [c.choices[0].delta.content or "" for c in chat(client, stream=True) if c.choices]
    assert "".join(chunks) == whole
    assert len(chunks) > 1


def test_a_stop_string_ends_the_answer_before_it(client):
    whole = chat(client).choices[0].message.content
    stop = whole[len(whole) // 2 :][:3]
    answer = chat(client, stop=[stop])
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == whole[: whole.index(stop)]


def test_log_probs_come_one_per_token(client):
    answer = chat(client, logprobs=True, top_logprobs=2)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    assert all(entry.logprob == entry.top_logprobs[0].logprob for entry in entries)


def test_a_json_schema_is_kept(client):
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green", "blue"]}},
        "required": ["colour"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": schema}}
    answer = json.loads(chat(client, response_format=form).choices[0].message.content)
    assert answer["colour"] in schema["properties"]["colour"]["enum"]


def test_several_choices_are_the_greedy_text_each(client):
    answer = chat(client, n=2)
    assert answer.choices[0].message.content == answer.choices[1].message.content


def test_a_request_without_max_tokens_is_answered(client):
    messages = [{"role": "user", "content": "Say hi."}]
    answer = client.chat.completions.create(model=MODEL_NAME, messages=messages, temperature=0, stop=["."])
    assert answer.choices[0].finish_reason in ("stop", "length")


def test_a_bad_request_is_refused_and_the_server_goes_on(client):
    with pytest.raises(BadRequestError):
        chat(client, logit_bias={"999999": 5})
    assert chat(client).choices[0].message.content


def test_the_rounds_of_a_request_are_in_its_meta_info(base):
    body = {"text": "The sky is", "sampling_params": {"max_new_tokens": 12, "temperature": 0}}
    request = urllib.request.Request(
        base + "/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    meta = json.load(urllib.request.urlopen(request))["meta_info"]
    rounds = [Round(*r) for r in meta[META_KEY]]
    assert {r.drafter for r in rounds} <= {"eagle3", "dflash"}
    assert {r.drafted for r in rounds} <= {11, 7}  # nodes of the tree, tokens of the block
    assert 1 + sum(r.accepted + 1 for r in rounds) >= meta["completion_tokens"]
