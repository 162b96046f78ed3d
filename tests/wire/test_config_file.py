"""hayate serve --config: options from a TOML file."""

import subprocess

import httpx
import pytest
from patience import patient
from server_process import BINARY, ServerProcess


def start_fails(path) -> str:
    """What the binary says; it must refuse before it loads a model."""
    done = subprocess.run([BINARY, "serve", "--config", path], check=False, capture_output=True, text=True, timeout=patient(20))
    assert done.returncode == 2, done
    return done.stderr


def test_file_sets_options_and_flags_win_over_it(tmp_path):
    path = tmp_path / "serve.toml"
    path.write_text('# comment\nserved-model-name = "from file"\nmax-total-tokens = 64\nenable-metrics = true\n')
    flags = ["--config", str(path), "--max-total-tokens", "96"]
    server = ServerProcess(flags, tmp_path / "log")
    try:
        server.wait_until_ready()
        assert httpx.get(server.url + "/v1/models").json()["data"][0]["id"] == "from file"
        metrics = httpx.get(server.url + "/metrics")
        assert metrics.status_code == 200
        assert 'max_total_num_tokens{model_name="from file"} 96' in metrics.text
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prot = 1\n", "prot: no such option; did you mean --port?"),
        ("port = 70000\n", "port: "),
        ('port = "abc"\n', "port: "),
        ("port = [1, 2]\n", "port: "),
        ("port = 1\nthreads = 1\nport = 2\n", "port: is set twice"),
        ('enable-metrics = "perhaps"\n', "enable-metrics: "),
        ("[serve]\nport = 1\n", "serve.port: no such option"),
        ('config = "other.toml"\n', "config: no such option"),
        ("help = true\n", "help: no such option"),
        ("\x01\x02\xff = = [\n", "no such option"),
    ],
)
def test_bad_file_is_refused_by_file_and_key(tmp_path, text, complaint):
    path = tmp_path / "serve.toml"
    path.write_text(text)
    said = start_fails(path)
    assert str(path) in said and complaint in said


def test_missing_file_is_refused(tmp_path):
    assert "no such file" in start_fails(tmp_path / "absent.toml")
    assert "no such file" in start_fails(tmp_path)
