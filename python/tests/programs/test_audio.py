"""Spectrograms, speech recognition and neural codecs."""

import math

import numpy as np
from differential import compare
from training import initialize, merge_heads, split_heads, train


def waves(lib, count, length):
    """Sums of tones, one row for each wave."""
    rng = np.random.default_rng(0)
    time = np.arange(length) / 400
    tones = [sum(a * np.sin(2 * math.pi * f * time + a) for a, f in rng.uniform(0.1, 60, (4, 2))) for _ in range(count)]
    return lib.array(np.stack(tones).astype(np.float32) / 60)


def log_mel(lib, audio, bins=16, window=32, hop=8):
    """A log-mel spectrogram of frames that overlap: ``(batch, frames, bins)``."""
    mx = lib.mx
    half = window // 2
    head, tail = audio[:, 1 : half + 1][:, ::-1], audio[:, -half - 1 : -1][:, ::-1]
    padded = mx.contiguous(mx.concatenate([head, audio, tail], axis=1))
    batch, length = padded.shape
    frames = mx.as_strided(padded, (batch, (length - window) // hop + 1, window), (length, hop, 1))
    hann = 0.5 - 0.5 * mx.cos(2 * math.pi * mx.arange(window) / window)
    power = mx.abs(mx.fft.rfft(frames * hann)).square()
    centers = mx.linspace(0, half, bins + 2)
    rows = mx.arange(half + 1)[:, None]
    filters = mx.maximum(0, 1 - mx.abs(rows - centers[1:-1]) / (centers[1] - centers[0]))
    logs = mx.log10(mx.maximum(power @ filters, 1e-10))
    return (mx.maximum(logs, logs.max() - 8.0) + 4.0) / 4.0


def test_speech_is_transcribed_with_cached_keys():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        dims, heads = 32, 4

        def sinusoids(length):
            rates = mx.exp(-math.log(10000) / (dims // 2 - 1) * mx.arange(dims // 2))
            angles = mx.arange(length)[:, None] * rates[None]
            return mx.concatenate([mx.sin(angles), mx.cos(angles)], axis=1)

        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.query, self.value, self.out = (nn.Linear(dims, dims) for _ in range(3))
                self.key = nn.Linear(dims, dims, bias=False)

            def __call__(self, x, memory=None, mask=None, cache=None):
                q = split_heads(self.query(x), heads)
                if memory is not None and cache is not None:
                    k, v = cache
                else:
                    source = x if memory is None else memory
                    k, v = split_heads(self.key(source), heads), split_heads(self.value(source), heads)
                    if cache is not None:
                        k, v = mx.concatenate([cache[0], k], axis=2), mx.concatenate([cache[1], v], axis=2)
                scores = (q * (dims // heads) ** -0.5) @ k.swapaxes(-1, -2)
                if mask is not None:
                    scores = scores + mask[: scores.shape[-2], : scores.shape[-1]]
                weights = mx.softmax(scores, axis=-1, precise=True)
                return self.out(merge_heads(weights @ v)), (k, v), scores

        class Block(nn.Module):
            def __init__(self, cross=False):
                super().__init__()
                self.attention, self.norm = Attention(), nn.LayerNorm(dims)
                self.cross, self.cross_norm = (Attention(), nn.LayerNorm(dims)) if cross else (None, None)
                self.mlp1, self.mlp2, self.mlp_norm = nn.Linear(dims, 64), nn.Linear(64, dims), nn.LayerNorm(dims)

            def __call__(self, x, memory=None, mask=None, caches=(None, None)):
                y, own, _ = self.attention(self.norm(x), mask=mask, cache=caches[0])
                x, crossed = x + y, None
                if self.cross is not None:
                    y, crossed, _ = self.cross(self.cross_norm(x), memory, cache=caches[1])
                    x = x + y
                return x + self.mlp2(nn.gelu(self.mlp1(self.mlp_norm(x)))), (own, crossed)

        class Whisper(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv1 = nn.Conv1d(16, dims, kernel_size=3, padding=1)
                self.conv2 = nn.Conv1d(dims, dims, kernel_size=3, stride=2, padding=1)
                self._positions = sinusoids(40)
                self.encoder, self.decoder = [Block(), Block()], [Block(True), Block(True)]
                self.norms = [nn.LayerNorm(dims), nn.LayerNorm(dims)]
                self.tokens = nn.Embedding(30, dims)
                self.places = mx.zeros((16, dims))

            def encode(self, mel):
                x = nn.gelu(self.conv2(nn.gelu(self.conv1(mel))))
                x = x + self._positions[: x.shape[1]]
                for block in self.encoder:
                    x, _ = block(x)
                return self.norms[0](x)

            def decode(self, tokens, memory, caches=None):
                offset = caches[0][0][0].shape[2] if caches else 0
                x = self.tokens(tokens) + self.places[offset : offset + tokens.shape[1]]
                mask = nn.MultiHeadAttention.create_additive_causal_mask(16) if not caches else None
                kept = []
                for i, block in enumerate(self.decoder):
                    x, cache = block(x, memory, mask, caches[i] if caches else (None, None))
                    kept.append(cache)
                return self.tokens.as_linear(self.norms[1](x)), kept

        model = initialize(lib, Whisper())
        assert "_positions" not in model.parameters()
        mel = log_mel(lib, waves(lib, 2, 400))
        texts = lib.array(np.random.default_rng(1).integers(1, 30, (2, 9)))

        def loss_fn(x, y):
            logits, _ = model.decode(y[:, :-1], model.encode(x))
            return nn.losses.cross_entropy(logits, y[:, 1:]).mean()

        losses = train(lib, model, lib.optim.Adam(3e-3), loss_fn, [(mel, texts)] * 4)
        memory, token, caches, written = model.encode(mel), texts[:, :1], None, []
        for _ in range(8):
            logits, caches = model.decode(token, memory, caches)
            logprobs = logits[:, -1] - mx.logsumexp(logits[:, -1], axis=-1, keepdims=True)
            token = mx.argmax(logprobs, axis=-1, keepdims=True)
            written.append((token, mx.take_along_axis(logprobs, token, axis=-1)))
        return mel, losses, written

    compare(scenario, tol=3e-3)


def test_a_connectionist_temporal_loss():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn

        def ctc(logits, labels):
            """The negative log-likelihood of all alignments; class 0 is the blank."""
            logprobs = nn.log_softmax(logits, axis=-1)
            batch, frames, _ = logprobs.shape
            states = 2 * labels.shape[1] + 1
            extended = mx.zeros((batch, states), mx.int32)
            extended[:, 1::2] = labels
            skips = mx.zeros((batch, states), mx.bool_)
            skips[:, 3::2] = labels[:, 1:] != labels[:, :-1]
            emitted = mx.take_along_axis(logprobs, mx.broadcast_to(extended[:, None], (batch, frames, states)), axis=-1)
            alpha = mx.where(mx.arange(states) < 2, emitted[:, 0], -1e30)
            for t in range(1, frames):
                one = mx.pad(alpha[:, :-1], [(0, 0), (1, 0)], constant_values=-1e30)
                two = mx.where(skips, mx.pad(alpha[:, :-2], [(0, 0), (2, 0)], constant_values=-1e30), -1e30)
                alpha = mx.logaddexp(mx.logaddexp(alpha, one), two) + emitted[:, t]
            return -mx.logaddexp(alpha[:, -1], alpha[:, -2]).mean()

        class Recognizer(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv1d(16, 24, 5, stride=2, padding=2)
                self.norm = nn.LayerNorm(24)
                self.forwards, self.backwards = nn.GRU(24, 16), nn.GRU(24, 16)
                self.head = nn.Linear(32, 8)

            def __call__(self, mel):
                x = self.norm(nn.leaky_relu(self.conv(mel)))
                both = [self.forwards(x), self.backwards(x[:, ::-1])[:, ::-1]]
                return self.head(mx.concatenate(both, axis=-1))

        model = initialize(lib, Recognizer())
        mel = log_mel(lib, waves(lib, 3, 160))
        labels = lib.array([[1, 2, 2, 3], [4, 4, 5, 1], [7, 6, 5, 5]])
        losses = train(lib, model, lib.optim.RMSprop(3e-3), lambda x, y: ctc(model(x), y), [(mel, labels)] * 3)
        return losses, model(mel)

    compare(scenario, tol=3e-3)


def test_a_codec_with_residual_vector_quantization():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn

        class Residual(nn.Module):
            def __init__(self, dims, dilation):
                super().__init__()
                self.conv1 = nn.Conv1d(dims, dims // 2, 3, dilation=dilation)
                self.conv2 = nn.Conv1d(dims // 2, dims, 1)
                self.pad = 2 * dilation

            def __call__(self, x):
                y = mx.pad(nn.elu(x), [(0, 0), (self.pad, 0), (0, 0)])
                return x + self.conv2(nn.elu(self.conv1(y)))

        class Codec(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = nn.Sequential(
                    nn.Conv1d(1, 8, 7, padding=3),
                    Residual(8, 1),
                    nn.Conv1d(8, 16, 4, stride=2, padding=1),
                    Residual(16, 3),
                )
                self.lstm = nn.LSTM(16, 16)
                self.codebooks = mx.zeros((3, 32, 16))
                self.decoder = nn.Sequential(
                    Residual(16, 1),
                    nn.ConvTranspose1d(16, 8, 4, stride=2, padding=1),
                    Residual(8, 1),
                    nn.Conv1d(8, 1, 7, padding=3),
                )

            def quantize(self, x):
                found, left, commitment = mx.zeros_like(x), x, 0
                ids = []
                for i in range(self.codebooks.shape[0]):
                    book = self.codebooks[i]
                    distance = (left**2).sum(-1, keepdims=True) - 2 * left @ book.T + (book**2).sum(-1)
                    ids.append(mx.argmin(mx.stop_gradient(distance), axis=-1))
                    chosen = book[ids[-1]]
                    commitment = commitment + (left - mx.stop_gradient(chosen)).square().mean()
                    commitment = commitment + (mx.stop_gradient(left) - chosen).square().mean()
                    found, left = found + chosen, left - mx.stop_gradient(chosen)
                return x + mx.stop_gradient(found - x), mx.stack(ids, axis=-1), commitment

            def __call__(self, x):
                x = self.encoder(x)
                x = x + self.lstm(x)[0]
                x, ids, commitment = self.quantize(x)
                return self.decoder(x), ids, commitment

        model = initialize(lib, Codec())
        audio = waves(lib, 2, 128)[..., None]

        def loss_fn(x):
            y, _, commitment = model(x)
            return nn.losses.l1_loss(y, x) + 0.25 * commitment

        losses = train(lib, model, lib.optim.Adamax(3e-3), loss_fn, [(audio,)] * 3)
        decoded, ids, _ = model(audio)
        return losses, decoded, ids

    compare(scenario, tol=3e-3)
