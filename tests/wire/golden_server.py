"""Servers of the tiny checkpoints under tests/golden, and prompts of token ids for them."""

import contextlib
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
from patience import patient
from server_process import ROOT, ServerProcess

GOLDEN = ROOT / "tests" / "golden"
sys.path.insert(0, str(GOLDEN))
from byte_tokenizer import write_tokenizer

# A small pool and small chunks: prefixes are evicted, prompts are cut in odd places.
SMALL = ["--max-total-tokens", "1024", "--chunked-prefill-size", "48"]


def golden_checkpoint(case: str, folder: Path) -> Path:
    """A copy of a folder of tests/golden; it gets a tokenizer where it has none."""
    checkpoint = folder / "checkpoint"
    shutil.copytree(GOLDEN / case, checkpoint)
    if not (checkpoint / "tokenizer.json").exists():
        write_tokenizer(checkpoint)
    return checkpoint


@contextlib.contextmanager
def serve(case: str, folder: Path, *flags: str) -> Iterator[ServerProcess]:
    """`case`: a folder of tests/golden."""
    arguments = ["--model-path", str(golden_checkpoint(case, folder)), "--enable-cache-report", *SMALL, *flags]
    with ServerProcess(arguments, folder / "server.log") as process:
        yield process


@contextlib.contextmanager
def client_of(process: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=process.url + "/v1", api_key="none", max_retries=0, timeout=patient(120)) as made:
        yield made


def complete(client: openai.OpenAI, prompt: list[int], **fields):
    """Greedy and of full length, but for what `fields` say."""
    answer = {"max_tokens": 24, "temperature": 0.0, "extra_body": {"ignore_eos": True}}
    return client.completions.create(model="default", prompt=prompt, **{**answer, **fields})


def tokens(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(8, 256), k=count)
