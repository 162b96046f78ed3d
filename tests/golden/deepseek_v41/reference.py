"""DeepSeek V4.1 in plain numpy, float64: the published formulas, a whole prompt at once, no cache.

Quantisation of activations, cache rows and index keys is not simulated. Every layer computes every
position, and layers score against the index keys of their own source.

Bounded replay of a cached prefix of `settled` tokens (replayed_logits): only the tokens from `first` on
are computed. Their windows begin at `first`; entries and index keys of the prefix are what a whole run
over it made.
"""

import math

import numpy as np

STREAMS = 4


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


class Reference:
    def __init__(self, config: dict, weights: dict):
        self.c = config
        self.w = weights
        self.smallest_gap = math.inf
        self.first, self.settled = 0, 0
        self.made: dict[int, tuple] = {}  # layer → index keys and entries
        self.kept: dict[int, tuple] = {}  # the same, of the prefix

    # Rotation of the last features, in pairs (2i, 2i + 1).

    def frequencies(self, compressed: bool):
        c = self.c
        rotary = c["qk_rope_head_dim"]
        i = np.arange(rotary // 2)
        if not compressed:
            return c["rope_theta"] ** (-2.0 * i / rotary)
        yarn, base = c["rope_scaling"], c["compress_rope_theta"]
        inverse = base ** (-2.0 * i / rotary)
        original = yarn["original_max_position_embeddings"]

        def correction(rotations):
            return rotary * math.log(original / (2 * math.pi * rotations)) / (2 * math.log(base))

        low = max(math.floor(correction(yarn["beta_fast"])), 0)
        high = min(math.ceil(correction(yarn["beta_slow"])), rotary - 1)
        keep = 1 - np.clip((i - low) / max(high - low, 0.001), 0, 1)
        return inverse * keep + inverse / yarn["factor"] * (1 - keep)

    def rotate(self, x, positions, compressed, sign=1.0):
        """x [T, ..., D] at positions [T]."""
        rotary = self.c["qk_rope_head_dim"]
        angle = np.asarray(positions)[:, None] * self.frequencies(compressed)
        angle = angle.reshape(len(positions), *[1] * (x.ndim - 2), rotary // 2)
        cos, sin = np.cos(angle), sign * np.sin(angle)
        out = x.copy()
        a, b = x[..., -rotary::2], x[..., x.shape[-1] - rotary + 1 :: 2]
        out[..., -rotary::2] = a * cos - b * sin
        out[..., x.shape[-1] - rotary + 1 :: 2] = a * sin + b * cos
        return out

    # Hyper-connections.

    def coefficients(self, h, prefix):
        """h [T, 4, H] → pre [T, 4], post [T, 4], matrix [T, 4, 4]."""
        c, w = self.c, self.w
        x = h.reshape(len(h), -1)
        mix = x @ w[f"{prefix}_fn"].T / np.sqrt((x * x).mean(-1, keepdims=True) + c["rms_norm_eps"])
        scale, base = w[f"{prefix}_scale"], w[f"{prefix}_base"]
        pre = sigmoid(mix[:, :4] * scale[0] + base[:4]) + c["hc_eps"]
        post = 2 * sigmoid(mix[:, 4:8] * scale[1] + base[4:8])
        matrix = (mix[:, 8:] * scale[2] + base[8:]).reshape(-1, 4, 4)
        matrix = softmax(matrix, -1) + c["hc_eps"]
        matrix = matrix / (matrix.sum(1, keepdims=True) + c["hc_eps"])
        for _ in range(c["hc_sinkhorn_iters"] - 1):
            matrix = matrix / (matrix.sum(2, keepdims=True) + c["hc_eps"])
            matrix = matrix / (matrix.sum(1, keepdims=True) + c["hc_eps"])
        return pre, post, matrix

    @staticmethod
    def leave(h, y, post, matrix):
        return post[:, :, None] * y[:, None, :] + np.einsum("tjk,tjd->tkd", matrix, h)

    # Engram.

    def primes(self):
        """Per engram layer the bucket sizes [n-gram][head]."""
        c, used, result = self.c, set(), []
        for _ in c["engram_layer_ids"]:
            layer = []
            for _ in range(c["engram_max_ngram_size"] - 1):
                sizes, candidate = [], c["engram_vocab_size"] - 1
                while len(sizes) < c["engram_n_heads"]:
                    candidate += 1
                    if is_prime(candidate) and candidate not in used:
                        used.add(candidate)
                        sizes.append(candidate)
                layer.append(sizes)
            result.append(layer)
        return result

    def engram_rows(self, layer: int, ids):
        """Table rows [T, n-grams × heads] of an engram layer."""
        c, token_map = self.c, self.w["engram.token_map"]
        bound = (2**63 - 1) // c["engram_compressed_vocab_size"] // 2
        count = c["engram_max_ngram_size"]
        multipliers = [int(m) * 2 + 1 for m in np.random.default_rng(10007 * layer).integers(0, bound, count)]
        primes = self.primes()[c["engram_layer_ids"].index(layer)]
        offsets = np.concatenate([[0], np.cumsum([p for sizes in primes for p in sizes])])
        pad = int(token_map[c["engram_pad_token_id"]])
        rows = []
        for t in range(self.first, len(ids)):
            accumulated, row = 0, []
            for s in range(count):
                source = int(token_map[ids[t - s]]) if t >= s else pad
                accumulated ^= source * multipliers[s]
                if s == 0:
                    continue
                for head, size in enumerate(primes[s - 1]):
                    row.append(accumulated % size + int(offsets[(s - 1) * c["engram_n_heads"] + head]))
            rows.append(row)
        return np.array(rows)

    def engram(self, h, layer: int, ids):
        w, prefix, hidden = self.w, f"layers.{layer}.engram", self.c["hidden_size"]
        gathered = w[f"{prefix}.embed.weight"][self.engram_rows(layer, ids)].reshape(len(h), -1)
        kv = (gathered @ w[f"{prefix}.wkv.weight"].T).reshape(len(h), 5, hidden)
        key, value = kv[:, :4], kv[:, 4]
        dot = (h * w[f"{prefix}.q_weight"] * w[f"{prefix}.k_weight"] * key).sum(-1)
        dot /= np.sqrt((h * h).mean(-1) + 1e-20) * np.sqrt((key * key).mean(-1) + 1e-20)
        dot *= hidden**-0.5
        gate = sigmoid(np.where(dot < 0, -1.0, 1.0) * np.sqrt(np.maximum(np.abs(dot), 1e-6)))
        return h + gate[..., None] * value[:, None, :]

    # Attention.

    def compress(self, x, layer: int):
        """The layer's entries: their latents, normed and not rotated, and their positions."""
        w, c, prefix = self.w, self.c, f"layers.{layer}.attn.compressor"
        ratio = c["compress_ratios"][layer]
        kv = x @ w[f"{prefix}.wkv.weight"].T
        if ratio > 1:
            count = len(x) // ratio
            gate = x @ w[f"{prefix}.wgate.weight"].T
            blocks = lambda y: y[: count * ratio].reshape(count, ratio, -1)
            kv = (softmax(blocks(gate), 1) * blocks(kv)).sum(1)
        at = self.first + np.arange(len(kv)) * ratio
        return rms_norm(kv, w[f"{prefix}.norm.weight"], c["rms_norm_eps"]), at

    def make_entries(self, x, layer: int):
        """Index keys and entries of all positions up to the end of x."""
        w, c, prefix = self.w, self.c, f"layers.{layer}.attn.indexer"
        latents, at = self.compress(x, layer)
        keys = rms_norm(latents @ w[f"{prefix}.wk.weight"].T, w[f"{prefix}.k_norm.weight"], c["rms_norm_eps"])
        made = self.rotate(keys, at, True), self.rotate(latents, at, True)
        if self.kept:
            begin = (self.settled - self.first) // c["compress_ratios"][layer]
            made = tuple(np.concatenate([old, new[begin:]]) for old, new in zip(self.kept[layer], made))
        self.made[layer] = made
        return made

    def top(self, scores, k):
        """Indices of the k largest, ascending; remembers how close the choice was."""
        if len(scores) <= k:
            return np.arange(len(scores))
        order = np.argsort(-scores, kind="stable")
        if np.isfinite(scores[order[k]]) and np.isfinite(scores[order[k - 1]]):
            self.smallest_gap = min(self.smallest_gap, scores[order[k - 1]] - scores[order[k]])
        return np.sort(order[:k])

    def select(self, x, q_latent, layer: int, ratio: int):
        """Per token the entries that it attends to, for an index-source layer."""
        w, c, prefix = self.w, self.c, f"layers.{layer}.attn.indexer"
        heads, width = c["index_n_heads"], c["index_head_dim"]
        q = (q_latent @ w[f"{prefix}.wq_b.weight"].T).reshape(len(x), heads, width)
        q = self.rotate(q, self.first + np.arange(len(x)), True)
        weights = x @ w[f"{prefix}.weights_proj.weight"].T * (width**-0.5 * heads**-0.5)
        size, chosen = c["candidate_block_size"], []
        first = c["candidate_source_layer_id"]
        if layer == first:
            self.candidates = []
        for p in range(len(x)):
            visible = (self.first + p + 1) // ratio
            scores = (np.maximum(self.index_keys[:visible] @ q[p].T, 0) * weights[p]).sum(-1)
            if layer == first:
                blocks = [scores[b : b + size].max() for b in range(0, visible, size)]
                blocks[(visible - 1) // size] = math.inf
                self.candidates.append(self.top(np.array(blocks), c["candidate_topk_blocks"]))
            elif layer > first:
                kept = np.isin(np.arange(visible) // size, self.candidates[p])
                entries = np.flatnonzero(kept)
                chosen.append(entries[self.top(scores[entries], c["index_topk"])])
                continue
            chosen.append(self.top(scores, c["index_topk"]))
        return chosen

    def attention(self, x, layer: int):
        w, c, prefix = self.w, self.c, f"layers.{layer}.attn"
        count, heads, d, eps = len(x), c["num_attention_heads"], c["head_dim"], c["rms_norm_eps"]
        ratio = c["compress_ratios"][layer]
        compressed, positions = ratio > 0, self.first + np.arange(count)
        q_latent = rms_norm(x @ w[f"{prefix}.wq_a.weight"].T, w[f"{prefix}.q_norm.weight"], eps)
        q = (q_latent @ w[f"{prefix}.wq_b.weight"].T).reshape(count, heads, d)
        q = self.rotate(q, positions, compressed)
        window = rms_norm(x @ w[f"{prefix}.wkv.weight"].T, w[f"{prefix}.kv_norm.weight"], eps)
        window = self.rotate(window, positions, compressed)
        if layer in c["kv_source_layer_ids"]:
            self.index_keys, self.entries = self.make_entries(x, layer)
        if layer in c["index_source_layer_ids"]:
            self.selected = self.select(x, q_latent, layer, ratio)
        out = np.empty((count, heads, d))
        for p in range(count):
            seen = window[max(0, p - c["sliding_window"] + 1) : p + 1]
            if compressed:
                seen = np.concatenate([seen, self.entries[self.selected[p]]])
            score = q[p] @ seen.T * d**-0.5
            most = score.max(-1, keepdims=True)
            weight = np.exp(score - most)
            total = weight.sum(-1, keepdims=True) + np.exp(w[f"{prefix}.attn_sink"][:, None] - most)
            out[p] = weight / total @ seen
        out = self.rotate(out, positions, compressed, -1.0)
        groups = c["o_groups"]
        down = w[f"{prefix}.wo_a.weight"].reshape(groups, c["o_lora_rank"], -1)
        low = np.einsum("tgi,goi->tgo", out.reshape(count, groups, -1), down)
        return low.reshape(count, -1) @ w[f"{prefix}.wo_b.weight"].T

    # Experts.

    def expert(self, x, prefix: str, weight=1.0):
        w, limit = self.w, self.c["swiglu_limit"]
        gate = np.minimum(x @ w[f"{prefix}.w1.weight"].T, limit)
        up = np.clip(x @ w[f"{prefix}.w3.weight"].T, -limit, limit)
        return (weight * gate * sigmoid(gate) * up) @ w[f"{prefix}.w2.weight"].T

    def experts(self, x, layer: int):
        w, c, prefix = self.w, self.c, f"layers.{layer}.ffn"
        score = np.sqrt(np.log1p(np.exp(x @ w[f"{prefix}.gate.weight"].T)))
        out = self.expert(x, f"{prefix}.shared_experts")
        for t in range(len(x)):
            chosen = np.argsort(-(score[t] + w[f"{prefix}.gate.bias"]))[: c["num_experts_per_tok"]]
            weight = score[t, chosen] / (score[t, chosen].sum() + 1e-20) * c["routed_scaling_factor"]
            for e, share in zip(chosen, weight):
                out[t] += self.expert(x[t], f"{prefix}.experts.{e}", share)
        return out

    def replayed_logits(self, ids, first: int, settled: int):
        """Logits from position `settled` on, of a prompt whose first `settled` tokens are cached."""
        self.logits(ids[:settled])
        self.kept, self.made = self.made, {}
        self.first, self.settled = first, settled
        logits = self.logits(ids)[settled - first :]
        self.kept, self.first, self.settled = {}, 0, 0
        return logits

    def logits(self, ids):
        w, c = self.w, self.c
        eps = c["rms_norm_eps"]
        h = np.repeat(w["embed.weight"][ids[self.first :]][:, None, :], STREAMS, 1)
        pre = np.tile([1.0, 0.0, 0.0, 0.0], (len(h), 1))
        collapse = lambda p: np.einsum("tj,tjd->td", p, h)
        for layer in range(c["num_hidden_layers"]):
            prefix = f"layers.{layer}"
            if layer in c["engram_layer_ids"]:
                h = self.engram(h, layer, ids)
            next_pre, post, matrix = self.coefficients(h, f"{prefix}.hc_attn")
            y = self.attention(rms_norm(collapse(pre), w[f"{prefix}.attn_norm.weight"], eps), layer)
            h, pre = self.leave(h, y, post, matrix), next_pre
            next_pre, post, matrix = self.coefficients(h, f"{prefix}.hc_ffn")
            y = self.experts(rms_norm(collapse(pre), w[f"{prefix}.ffn_norm.weight"], eps), layer)
            h, pre = self.leave(h, y, post, matrix), next_pre
        return rms_norm(collapse(pre), w["norm.weight"], eps) @ w["head.weight"].T
