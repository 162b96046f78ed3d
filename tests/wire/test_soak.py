"""The soak of tools/soak.py in short, over tiny checkpoints: every request that is answered at all is answered as
if alone, and nothing stays behind in any pool."""

import subprocess
import sys

import pytest
from golden_server import golden_checkpoint
from patience import patient
from server_process import BINARY, ROOT

DRAFTS = ["--speculative-adaptive", "off", "--speculative-algorithm"]
# A checkpoint, and flags of the server beside a pool that two long sequences fill.
CASES = {
    "v4": ("deepseek_v4/ratio_32", []),
    "v41": ("deepseek_v41/tiny", []),
    "v41_replaying": ("deepseek_v41/tiny", ["--swa-bounded-replay", "exact"]),
    "v3_mtp": ("deepseek_drafts/v3_mtp", [*DRAFTS, "NEXTN", "--speculative-num-steps", "3"]),
    "v4_mtp": ("deepseek_drafts/v4_mtp", [*DRAFTS, "NEXTN", "--speculative-num-steps", "4"]),
    "v41_dspark": ("deepseek_drafts/v41_dspark", [*DRAFTS, "DSPARK"]),
}
SECONDS = 3.0


@pytest.mark.parametrize("case", CASES)
def test_a_crowd_leaves_no_trace(case, tmp_path):
    name, flags = CASES[case]
    checkpoint = golden_checkpoint(name, tmp_path)
    soak = [sys.executable, ROOT / "tools" / "soak.py", "--hayate", BINARY, "--model", checkpoint]
    lengths = ["--prompt-words", "24", "--answer-tokens", "200"]
    load = ["--clients", "12", "--minutes", str(SECONDS / 60)]
    server = ["--", "--max-total-tokens", "1024", "--chunked-prefill-size", "96", *flags]
    done = subprocess.run([*soak, *lengths, *load, *server], capture_output=True, text=True, timeout=patient(300), check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
