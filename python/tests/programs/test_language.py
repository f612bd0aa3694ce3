"""Encoders, encoder-decoders, experts and generation."""

import math

import numpy as np
from differential import compare
from training import initialize, merge_heads, split_heads, train


def test_a_masked_language_model():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        dims, heads = 32, 4

        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = nn.MultiHeadAttention(dims, heads, bias=True)
                self.ln1, self.ln2 = nn.LayerNorm(dims, eps=1e-12), nn.LayerNorm(dims, eps=1e-12)
                self.linear1, self.linear2 = nn.Linear(dims, 64), nn.Linear(64, dims)

            def __call__(self, x, mask):
                x = self.ln1(x + self.attention(x, x, x, mask))
                return self.ln2(x + self.linear2(nn.gelu(self.linear1(x))))

        class Bert(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(60, dims)
                self.types = nn.Embedding(2, dims)
                self.positions = nn.Embedding(16, dims)
                self.norm = nn.LayerNorm(dims)
                self.layers = [Layer(), Layer()]
                self.pooler = nn.Linear(dims, dims)
                self.bias = mx.zeros((60,))

            def __call__(self, ids, types, attention_mask):
                positions = mx.broadcast_to(mx.arange(ids.shape[1]), ids.shape)
                x = self.norm(self.words(ids) + self.types(types) + self.positions(positions))
                mask = mx.expand_dims(mx.log(attention_mask), (1, 2))
                for layer in self.layers:
                    x = layer(x, mask)
                return self.words.as_linear(x) + self.bias, mx.tanh(self.pooler(x[:, 0]))

        model = initialize(lib, Bert())

        def loss_fn(ids, types, mask, labels):
            logits, _ = model(ids, types, mask)
            chosen = (labels >= 0).astype(mx.float32)
            losses = nn.losses.cross_entropy(logits, mx.maximum(labels, 0)) * chosen
            return losses.sum() / chosen.sum()

        batches = []
        for i in range(4):
            rng = np.random.default_rng(i)
            ids = rng.integers(1, 60, (3, 12))
            hidden = rng.random(ids.shape) < 0.3
            mask = np.arange(12) < np.array([[12], [7], [9]])
            arrays = np.where(hidden, 0, ids), ids > 30, mask.astype(np.float32), np.where(hidden & mask, ids, -1)
            batches.append([lib.array(a) for a in arrays])
            batches[-1][1] = batches[-1][1].astype(mx.uint32)
        optimizer = lib.optim.AdamW(1e-2, betas=[0.9, 0.98], weight_decay=0.01)
        losses = train(lib, model, optimizer, loss_fn, batches)
        return losses, model(*batches[0][:3])

    compare(scenario, tol=3e-3)


def test_an_encoder_decoder_with_relative_positions_decodes_with_a_cache():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        dims, heads, buckets = 32, 4, 8

        def bucket(distance, two_sided):
            count = buckets // 2 if two_sided else buckets
            side = (distance > 0).astype(mx.int32) * count if two_sided else 0
            distance = mx.abs(distance) if two_sided else -mx.minimum(distance, 0)
            exact = count // 2
            scale = (count - exact) / math.log(32 / exact)
            far = mx.log(mx.maximum(distance, 1).astype(mx.float32) / exact) * scale
            far = mx.minimum(exact + far.astype(mx.int16), count - 1)
            return side + mx.where(distance < exact, distance, far)

        class Positions(nn.Module):
            def __init__(self, two_sided):
                super().__init__()
                self.two_sided = two_sided
                self.embeddings = nn.Embedding(buckets, heads)

            def __call__(self, queries, keys, offset=0):
                distance = mx.arange(keys)[None] - mx.arange(offset, offset + queries)[:, None]
                return self.embeddings(bucket(distance, self.two_sided)).transpose(2, 0, 1)

        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.k, self.v, self.o = (nn.Linear(dims, dims, bias=False) for _ in range(4))

            def __call__(self, x, context, bias=None, cache=None):
                q, k, v = (split_heads(p(y), heads) for p, y in ((self.q, x), (self.k, context), (self.v, context)))
                if cache is not None:
                    k, v = mx.concatenate([cache[0], k], 2), mx.concatenate([cache[1], v], 2)
                scores = q @ k.transpose(0, 1, 3, 2)
                if bias is not None:
                    scores = scores + bias.astype(scores.dtype)
                weights = mx.softmax(scores.astype(mx.float32), axis=-1).astype(scores.dtype)
                return self.o(merge_heads(weights @ v)), (k, v)

        class Block(nn.Module):
            def __init__(self, cross):
                super().__init__()
                self.attention = Attention()
                self.cross = Attention() if cross else None
                self.wi_0, self.wi_1 = nn.Linear(dims, 64, bias=False), nn.Linear(dims, 64, bias=False)
                self.wo = nn.Linear(64, dims, bias=False)
                self.norms = [nn.RMSNorm(dims, eps=1e-6) for _ in range(3)]

            def __call__(self, x, bias, memory=None, cache=None):
                y = self.norms[0](x)
                y, cache = self.attention(y, y, bias, cache)
                x = x + y
                if self.cross is not None:
                    x = x + self.cross(self.norms[1](x), memory)[0]
                y = self.norms[2](x)
                return x + self.wo(nn.gelu(self.wi_0(y)) * self.wi_1(y)), cache

        class T5(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(50, dims)
                self.encoder, self.decoder = [Block(False) for _ in range(2)], [Block(True) for _ in range(2)]
                self.encoder_positions, self.decoder_positions = Positions(True), Positions(False)
                self.norm = nn.RMSNorm(dims)

            def encode(self, tokens):
                x = self.embed(tokens)
                bias = self.encoder_positions(x.shape[1], x.shape[1])
                for block in self.encoder:
                    x, _ = block(x, bias)
                return self.norm(x)

            def decode(self, tokens, memory, caches=None):
                x = self.embed(tokens)
                length = x.shape[1]
                offset = caches[0][0].shape[2] if caches else 0
                bias = self.decoder_positions(length, offset + length, offset)
                if length > 1:
                    bias = bias + nn.MultiHeadAttention.create_additive_causal_mask(length)
                kept = []
                for i, block in enumerate(self.decoder):
                    x, cache = block(x, bias, memory, caches[i] if caches else None)
                    kept.append(cache)
                return self.embed.as_linear(x * dims**-0.5), kept

            def __call__(self, source, target):
                return self.decode(target, self.encode(source))[0]

        model = initialize(lib, T5())
        pairs = [[lib.array(np.random.default_rng(i).integers(1, 50, (2, 9))) for i in (k, k + 9)] for k in range(3)]
        loss = lambda x, y: nn.losses.cross_entropy(model(x, y[:, :-1]), y[:, 1:]).mean()  # noqa: E731
        losses = train(lib, model, lib.optim.Adafactor(1e-2, relative_step=False, scale_parameter=False), loss, pairs)
        memory, token, caches, tokens, steps = model.encode(pairs[0][0]), mx.zeros((2, 1), mx.int32), None, [], []
        for _ in range(6):
            logits, caches = model.decode(token, memory, caches)
            token = mx.argmax(logits[:, -1:], axis=-1)
            tokens.append(token)
            steps.append(logits)
        whole = model.decode(mx.concatenate([mx.zeros((2, 1), mx.int32), *tokens[:-1]], 1), memory)[0]
        assert mx.allclose(mx.concatenate(steps, 1), whole, atol=1e-3).item()
        return losses, tokens, whole

    compare(scenario, tol=3e-3)


def test_a_mixture_of_experts_samples_text_with_a_rotating_cache():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        dims, heads, window = 32, 4, 8

        class Experts(nn.Module):
            def __init__(self, count=6, chosen=2):
                super().__init__()
                self.gate = nn.Linear(dims, count, bias=False)
                self.up = mx.zeros((count, 48, dims))
                self.down = mx.zeros((count, dims, 48))
                self.chosen = chosen

            def __call__(self, x):
                scores = mx.softmax(self.gate(x), axis=-1, precise=True)
                ids = mx.stop_gradient(mx.argpartition(-scores, kth=self.chosen - 1, axis=-1)[..., : self.chosen])
                weights = mx.take_along_axis(scores, ids, axis=-1)
                y = mx.expand_dims(x, (-2, -3))
                y = nn.silu(mx.gather_mm(y, self.up.swapaxes(-1, -2), rhs_indices=ids))
                y = mx.gather_mm(y, self.down.swapaxes(-1, -2), rhs_indices=ids).squeeze(-2)
                # Chosen experts come in no defined order; their weighted sum does not depend on it.
                return (y * (weights / weights.sum(-1, keepdims=True))[..., None]).sum(-2)

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(40, dims)
                self.q, self.k, self.v, self.o = (nn.Linear(dims, dims) for _ in range(4))
                self.norms = [nn.RMSNorm(dims), nn.RMSNorm(dims)]
                self.experts = Experts()
                self.rope = nn.RoPE(dims // heads, base=1000)

            def __call__(self, tokens, cache=None):
                x = self.embed(tokens)
                y = self.norms[0](x)
                q, k, v = (split_heads(p(y), heads) for p in (self.q, self.k, self.v))
                offset = cache["offset"] if cache else 0
                q, k = self.rope(q, offset=offset), self.rope(k, offset=offset)
                mask = "causal"
                if cache is not None and offset > 0:
                    # One step: the buffer's oldest position is overwritten.
                    place = offset % window
                    cache["k"][:, :, place : place + 1] = k
                    cache["v"][:, :, place : place + 1] = v
                    filled = min(offset + 1, window)
                    k, v, mask = cache["k"][..., :filled, :], cache["v"][..., :filled, :], None
                elif cache is not None:
                    cache["k"] = mx.zeros((*k.shape[:2], window, k.shape[-1]))
                    cache["v"] = mx.zeros((*k.shape[:2], window, k.shape[-1]))
                    cache["k"][..., : k.shape[2], :] = k
                    cache["v"][..., : k.shape[2], :] = v
                if cache is not None:
                    cache["offset"] += tokens.shape[1]
                y = mx.fast.scaled_dot_product_attention(q, k, v, scale=(dims // heads) ** -0.5, mask=mask)
                x = x + self.o(merge_heads(y))
                return self.embed.as_linear(x + self.experts(self.norms[1](x)))

        model = initialize(lib, Model())
        batches = [[lib.array(np.random.default_rng(i).integers(0, 40, (3, 8)))] for i in range(3)]
        loss = lambda x: nn.losses.cross_entropy(model(x[:, :-1]), x[:, 1:]).mean()  # noqa: E731
        losses = train(lib, model, lib.optim.Lion(1e-3), loss, batches)
        mx.random.seed(3)
        cache, token, tokens = {"offset": 0}, batches[0][0][:1, :5], []
        for _ in range(12):
            token = mx.random.categorical(model(token, cache)[:, -1] / 0.8)[:, None]
            mx.async_eval(token)
            tokens.append(token)
        return losses, mx.concatenate(tokens, axis=1), cache["k"]

    compare(scenario, tol=2e-3)
