"""Recurrences that programs write themselves: selective state spaces and linear attention."""

import numpy as np
from differential import compare
from training import initialize, train


def tokens(lib, seed, shape=(2, 10)):
    return lib.array(np.random.default_rng(seed).integers(0, 30, shape))


def test_a_selective_state_space_model_trains_and_decodes_step_by_step():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        dims, inner, states, rank, width = 16, 32, 8, 4, 4

        class Mixer(nn.Module):
            def __init__(self):
                super().__init__()
                self.in_proj = nn.Linear(dims, 2 * inner, bias=False)
                self.conv = nn.Conv1d(inner, inner, width, groups=inner)
                self.x_proj = nn.Linear(inner, rank + 2 * states, bias=False)
                self.dt_proj = nn.Linear(rank, inner)
                self.A_log = mx.zeros((inner, states))
                self.D = mx.zeros((inner,))
                self.out_proj = nn.Linear(inner, dims, bias=False)

            def __call__(self, x, cache=None):
                x, gate = self.in_proj(x).split(2, axis=-1)
                past, state = cache or (mx.zeros((x.shape[0], width - 1, inner)), mx.zeros((x.shape[0], inner, states)))
                padded = mx.concatenate([past, x], axis=1)
                x = nn.silu(self.conv(padded))
                dt, b, c = mx.split(self.x_proj(x), [rank, rank + states], axis=-1)
                dt = nn.softplus(self.dt_proj(dt))
                decay = mx.exp(mx.expand_dims(dt, -1) * -mx.exp(self.A_log))
                added = mx.expand_dims(dt * x, -1) * mx.expand_dims(b, -2)
                outputs = []
                for i in range(x.shape[1]):
                    state = decay[:, i] * state + added[:, i]
                    outputs.append((state @ c[:, i, :, None]).squeeze(-1))
                y = mx.stack(outputs, axis=1) + self.D * x
                return self.out_proj(nn.silu(gate) * y), (padded[:, 1 - width :], state)

        class Mamba(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.norm = nn.Embedding(30, dims), nn.RMSNorm(dims)
                self.mixers, self.norms = [Mixer(), Mixer()], [nn.RMSNorm(dims), nn.RMSNorm(dims)]

            def __call__(self, x, caches=(None, None)):
                x, kept = self.embed(x), []
                for mixer, norm, cache in zip(self.mixers, self.norms, caches):
                    y, cache = mixer(norm(x), cache)
                    x = x + y
                    kept.append(cache)
                return self.embed.as_linear(self.norm(x)), kept

        model = initialize(lib, Mamba())
        loss = lambda x: nn.losses.cross_entropy(model(x[:, :-1])[0], x[:, 1:]).mean()  # noqa: E731
        losses = train(lib, model, lib.optim.AdamW(5e-3), loss, [(tokens(lib, i),) for i in range(3)])
        text = tokens(lib, 7)
        whole, _ = model(text)
        steps, caches = [], (None, None)
        for i in range(text.shape[1]):
            logits, caches = model(text[:, i : i + 1], caches)
            steps.append(logits)
            mx.eval(logits, caches)
        assert mx.allclose(mx.concatenate(steps, axis=1), whole, atol=1e-4).item()
        return losses, whole, caches

    compare(scenario, tol=2e-3)


def test_linear_attention_with_a_delta_rule():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        dims, heads, size = 24, 3, 8

        @mx.compile
        def advance(state, r, w, k, v, a, b):
            removed = (state @ a[..., None]) @ b[..., None, :]
            state = state * w[..., None, :] + removed + v[..., None] @ k[..., None, :]
            return (state @ r[..., None]).squeeze(-1), state

        class TimeMix(nn.Module):
            def __init__(self):
                super().__init__()
                self.mix = mx.zeros((5, dims))
                self.r, self.w, self.k, self.v, self.a = (nn.Linear(dims, dims, bias=i == 1) for i in range(5))
                self.out = nn.Linear(dims, dims, bias=False)
                self.norm = nn.GroupNorm(heads, dims, pytorch_compatible=True)

            def __call__(self, x):
                batch, length, _ = x.shape
                shifted = mx.pad(x, [(0, 0), (1, 0), (0, 0)])[:, :-1] - x
                r, w, k, v, a = (
                    p(x + shifted * m).reshape(batch, length, heads, size)
                    for p, m in zip((self.r, self.w, self.k, self.v, self.a), self.mix)
                )
                w, a = mx.exp(-0.6 * mx.sigmoid(w)), mx.sigmoid(a)
                unit = k / mx.maximum(mx.linalg.norm(k, axis=-1, keepdims=True), 1e-6)
                state, outputs = mx.zeros((batch, heads, size, size)), []
                for t in range(length):
                    y, state = advance(state, r[:, t], w[:, t], k[:, t], v[:, t], -unit[:, t], unit[:, t] * a[:, t])
                    outputs.append(y)
                y = mx.stack(outputs, axis=1).reshape(-1, dims)
                return self.out(self.norm(y).reshape(batch, length, dims))

        class ChannelMix(nn.Module):
            def __init__(self):
                super().__init__()
                self.key, self.value = nn.Linear(dims, 48, bias=False), nn.Linear(48, dims, bias=False)

            def __call__(self, x):
                return self.value(nn.relu2(self.key(x)))

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(30, dims), nn.Linear(dims, 30, bias=False)
                self.time, self.channel = TimeMix(), ChannelMix()
                self.norms = [nn.LayerNorm(dims) for _ in range(3)]

            def __call__(self, x):
                x = self.norms[0](self.embed(x))
                x = x + self.time(self.norms[1](x))
                return self.head(x + self.channel(self.norms[2](x)))

        model = initialize(lib, Model())
        loss = lambda x: nn.losses.cross_entropy(model(x[:, :-1]), x[:, 1:]).mean()  # noqa: E731
        losses = train(lib, model, lib.optim.Adam(5e-3), loss, [(tokens(lib, i),) for i in range(3)])
        return losses, model(tokens(lib, 8))

    compare(scenario, tol=2e-3)


def test_a_gated_scan_by_cumulative_sums():
    def scenario(lib):
        mx = lib.mx

        def recurrence(x, gates):
            """``h[t] = g[t] h[t-1] + x[t]`` for all t at once, by the segment sums of log gates."""
            sums = mx.cumsum(mx.log(gates), axis=1)
            segments = (sums[:, :, None] - sums[:, None]).transpose(0, 3, 1, 2)
            decay = mx.tril(mx.exp(mx.tril(segments)))
            return (decay @ x.swapaxes(1, 2)[..., None]).squeeze(-1).swapaxes(1, 2)

        x, gates = lib.normal(2, 6, 3), mx.sigmoid(lib.normal(2, 6, 3, seed=1))
        state, steps = mx.zeros((2, 3)), []
        for t in range(6):
            state = gates[:, t] * state + x[:, t]
            steps.append(state)
        assert mx.allclose(recurrence(x, gates), mx.stack(steps, axis=1), atol=1e-5).item()
        return recurrence(x, gates), mx.grad(lambda *a: recurrence(*a).square().sum(), argnums=(0, 1))(x, gates)

    compare(scenario, tol=1e-4)
