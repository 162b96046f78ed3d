"""The draft blocks of DeepSeek V4 and V4.1 in plain numpy, float64: the published formulas, from the
trunk's streams of a whole prompt, no cache. Quantisation of activations and cache rows is not
simulated.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent / "deepseek_v41"))
from reference import STREAMS, Reference, rms_norm, sigmoid


class DraftReference(Reference):
    """`v4`: a sublayer's own coefficients collapse its streams, heads of queries are normed, and the
    end has coefficients of its own; else as V4.1."""

    def __init__(self, config: dict, weights: dict, v4: bool):
        super().__init__(config, weights)
        self.v4 = v4

    def eps(self) -> float:
        return self.c["rms_norm_eps"]

    def matrix(self, name: str):
        return self.w[f"{name}.weight"]

    def latents(self, x, prefix: str, positions):
        kv = rms_norm(x @ self.matrix(f"{prefix}.attn.wkv").T, self.matrix(f"{prefix}.attn.kv_norm"), self.eps())
        return self.rotate(kv, positions, False)

    def attend(self, x, prefix: str, positions, keys):
        """`keys`: per query the latents that it sees."""
        c, name = self.c, f"{prefix}.attn"
        heads, d = c["num_attention_heads"], c["head_dim"]
        low = rms_norm(x @ self.matrix(f"{name}.wq_a").T, self.matrix(f"{name}.q_norm"), self.eps())
        q = (low @ self.matrix(f"{name}.wq_b").T).reshape(len(x), heads, d)
        if self.v4:
            q = q / np.sqrt((q * q).mean(-1, keepdims=True) + self.eps())
        q = self.rotate(q, positions, False)
        out = np.empty_like(q)
        for i, seen in enumerate(keys):
            score = q[i] @ seen.T * d**-0.5
            most = score.max(-1, keepdims=True)
            weight = np.exp(score - most)
            total = weight.sum(-1, keepdims=True) + np.exp(self.w[f"{name}.attn_sink"][:, None] - most)
            out[i] = weight / total @ seen
        out = self.rotate(out, positions, False, -1.0)
        groups = c["o_groups"]
        down = self.matrix(f"{name}.wo_a").reshape(groups, c["o_lora_rank"], -1)
        z = np.einsum("tgi,goi->tgo", out.reshape(len(x), groups, -1), down)
        return z.reshape(len(x), -1) @ self.matrix(f"{name}.wo_b").T

    def mixture(self, x, prefix: str, per_token: int):
        name = f"{prefix}.ffn"
        score = np.sqrt(np.log1p(np.exp(x @ self.matrix(f"{name}.gate").T)))
        out = self.expert(x, f"{name}.shared_experts")
        for t in range(len(x)):
            chosen = np.argsort(-(score[t] + self.w[f"{name}.gate.bias"]))[:per_token]
            weight = score[t, chosen] / score[t, chosen].sum() * self.c["routed_scaling_factor"]
            for e, share in zip(chosen, weight):
                out[t] += self.expert(x[t], f"{name}.experts.{e}", share)
        return out

    def layer(self, h, pre, prefix: str, attention, per_token: int):
        """`attention` maps the sublayer's input to its output. Returns the streams and what collapses
        them next."""
        sublayers = [
            ("hc_attn", "attn_norm", attention),
            ("hc_ffn", "ffn_norm", lambda x: self.mixture(x, prefix, per_token)),
        ]
        for hyper, norm, run in sublayers:
            own, post, matrix = self.coefficients(h, f"{prefix}.{hyper}")
            u = np.einsum("tj,tjd->td", own if self.v4 else pre, h)
            y = run(rms_norm(u, self.matrix(f"{prefix}.{norm}"), self.eps()))
            h, pre = self.leave(h, y, post, matrix), own
        return h, pre

    def collapse(self, h, pre, prefix: str):
        """Not normed."""
        if self.v4:
            x, name = h.reshape(len(h), -1), f"{prefix}.hc_head"
            mix = x @ self.w[f"{name}_fn"].T / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps())
            pre = sigmoid(mix * self.w[f"{name}_scale"] + self.w[f"{name}_base"]) + self.c["hc_eps"]
        return np.einsum("tj,tjd->td", pre, h)

    def start(self):
        return np.array([[1.0, 0.0, 0.0, 0.0]])

    # MTP.

    def mtp_join(self, states, ids):
        """states [T, 4, H] of the trunk (or of the block itself) and the tokens after them."""
        e = rms_norm(self.matrix("embed")[ids], self.matrix("mtp.0.enorm"), self.eps())
        h = rms_norm(states, self.matrix("mtp.0.hnorm"), self.eps())
        return h @ self.matrix("mtp.0.h_proj").T + (e @ self.matrix("mtp.0.e_proj").T)[:, None]

    def mtp_run(self, g, first: int, before):
        """The block for positions first …, over the latents of all positions before."""
        window, positions, rows = self.c["sliding_window"], first + np.arange(len(g)), []

        def attention(x):
            rows.extend(self.latents(x, "mtp.0", positions))
            every = np.array([*before, *rows])
            keys = [every[max(0, p - window + 1) : p + 1] for p in positions]
            return self.attend(x, "mtp.0", positions, keys)

        h, _ = self.layer(g, None, "mtp.0", attention, self.c["num_experts_per_tok"])
        u = rms_norm(self.collapse(h, None, "mtp.0"), self.matrix("mtp.0.norm"), self.eps())
        return h, rows, u @ self.matrix("head").T

    def mtp_guesses(self, streams, ids, position: int, count: int):
        """Logits [count, V] of the guesses after ids[position + 1], and the greedy guesses."""
        g = self.mtp_join(streams[: position + 1], ids[1 : position + 2])
        h, rows, every = self.mtp_run(g, 0, [])
        logits, guesses, state = [every[-1]], [int(every[-1].argmax())], h[-1:]
        while len(guesses) < count:
            g = self.mtp_join(state, guesses[-1:])
            state, more, every = self.mtp_run(g, position + len(guesses), rows)
            rows = [*rows, *more]
            logits.append(every[-1])
            guesses.append(int(every[-1].argmax()))
        return np.array(logits), guesses

    # DSpark.

    def dspark_guesses(self, taps, anchor: int, position: int):
        """`taps` [T, targets, H]: the means of the streams. Logits [B, V], guesses, confidences [B]."""
        c = self.c
        block, window, last = c["dspark_block_size"], c["sliding_window"], f"mtp.{self.num_stages() - 1}"
        context = taps[: position + 1].reshape(position + 1, -1) @ self.matrix("mtp.0.main_proj").T
        context = rms_norm(context, self.matrix("mtp.0.main_norm"), self.eps())
        positions = position + 1 + np.arange(block)
        ids = [anchor] + [c["dspark_noise_token_id"]] * (block - 1)
        h = np.repeat(self.matrix("embed")[ids][:, None], STREAMS, 1)
        pre = np.repeat(self.start(), block, 0)
        per_token = c.get("dspark_num_experts_per_tok", c["num_experts_per_tok"])
        for stage in range(self.num_stages()):
            prefix = f"mtp.{stage}"
            seen = self.latents(context, prefix, np.arange(position + 1))[-window:]

            def attention(x, prefix=prefix, seen=seen):
                keys = np.concatenate([seen, self.latents(x, prefix, positions)])
                return self.attend(x, prefix, positions, [keys] * block)

            h, pre = self.layer(h, pre, prefix, attention, per_token)
        u = self.collapse(h, pre, last)
        base = rms_norm(u, self.matrix(f"{last}.norm"), self.eps()) @ self.matrix("head").T
        markov_in, markov_out = (
            self.w.get(f"{last}.markov_head.{v4}.weight", self.w.get(f"{last}.markov_head.{v41}.weight"))
            for v4, v41 in (("markov_w1", "embed"), ("markov_w2", "head"))
        )
        logits, guesses, confidences = [], [], []
        for i in range(block):
            m = markov_in[guesses[-1] if guesses else anchor]
            logits.append(base[i] + markov_out @ m)
            guesses.append(int(logits[-1].argmax()))
            raw = self.matrix(f"{last}.confidence_head.proj")[0] @ np.concatenate([u[i], m])
            confidences.append(float(sigmoid(raw)))
        return np.array(logits), guesses, confidences

    def num_stages(self) -> int:
        return len({name.split(".")[1] for name in self.w if name.startswith("mtp.")})
