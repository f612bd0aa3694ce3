"""Flows, autoencoders and diffusion models."""

import math

import numpy as np
from differential import compare
from training import initialize, merge_heads, split_heads, train


def test_a_normalizing_flow():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn

        class Coupling(nn.Module):
            def __init__(self, mask):
                super().__init__()
                self._mask = lib.array(mask)
                self.net = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 8))

            def parameters_of(self, x):
                shift, scale = mx.split(self.net(mx.where(self._mask, 0, x)), 2, axis=-1)
                return mx.where(self._mask, shift, 0), mx.where(self._mask, mx.tanh(scale), 0)

            def forward(self, x):
                shift, scale = self.parameters_of(x)
                return x * mx.exp(scale) + shift, scale.sum(-1)

            def inverse(self, y):
                shift, scale = self.parameters_of(y)
                return (y - shift) * mx.exp(-scale)

        class Flow(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = [Coupling(np.arange(4) % 2 == i % 2) for i in range(4)]

            def log_prob(self, x):
                total = 0
                for layer in self.layers:
                    x, logdet = layer.forward(x)
                    total = total + logdet
                return total - 0.5 * (x.square() + math.log(2 * math.pi)).sum(-1)

            def sample(self, count, key):
                x = mx.random.normal((count, 4), key=key)
                for layer in reversed(self.layers):
                    x = layer.inverse(x)
                return x

        flow = initialize(lib, Flow())
        assert all("_mask" not in name for name, _ in lib.utils.tree_flatten(flow.parameters()))
        data = lib.normal(64, 4) * lib.array([1.0, 0.3, 2.0, 0.5]) + 1
        losses = train(lib, flow, lib.optim.Adam(5e-3), lambda x: -flow.log_prob(x).mean(), [(data,)] * 5)
        return losses, flow.log_prob(data), flow.sample(8, mx.random.key(3))

    compare(scenario, tol=2e-3)


def test_a_variational_autoencoder_of_images():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn

        class Autoencoder(nn.Module):
            def __init__(self):
                super().__init__()
                # Without biases: their gradients in front of batch norms are rounding noise, which Adam scales up.
                self.down = [nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False) for a, b in ((1, 8), (8, 16))]
                self.norms = [nn.BatchNorm(8), nn.BatchNorm(16)]
                self.moments = nn.Linear(256, 12)
                self.start = nn.Linear(6, 256)
                self.up = nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)
                self.out = nn.Conv2d(8, 1, 3, padding=1)
                self.grow = nn.Upsample(2, mode="linear", align_corners=True)

            def __call__(self, x):
                for conv, norm in zip(self.down, self.norms):
                    x = nn.leaky_relu(norm(conv(x)))
                mean, logvar = mx.split(self.moments(x.flatten(1)), 2, axis=-1)
                z = mean + mx.exp(0.5 * logvar) * mx.random.normal(mean.shape)
                y = nn.leaky_relu(self.up(self.start(z).reshape(-1, 4, 4, 16)))
                return mx.sigmoid(self.out(self.grow(y))), mean, logvar

        model = initialize(lib, Autoencoder())

        def loss_fn(x):
            y, mean, logvar = model(x)
            divergence = -0.5 * mx.sum(1 + logvar - mean.square() - logvar.exp())
            return nn.losses.mse_loss(y, x, reduction="sum") + 0.1 * divergence

        images = mx.sigmoid(lib.normal(4, 16, 16, 1))
        mx.random.seed(11)
        losses = train(lib, model, lib.optim.AdamW(2e-3), loss_fn, [(images,)] * 4)
        return losses, model.eval()(images)

    compare(scenario, tol=3e-3)


def test_latent_diffusion_with_text_conditions():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn

        class Text(nn.Module):
            """A causal encoder with quick GELU."""

            def __init__(self, dims=24):
                super().__init__()
                self.tokens, self.places = nn.Embedding(30, dims), nn.Embedding(8, dims)
                self.attention = nn.MultiHeadAttention(dims, 3, bias=True)
                self.norms = [nn.LayerNorm(dims) for _ in range(3)]
                self.linear1, self.linear2 = nn.Linear(dims, 48), nn.Linear(48, dims)

            def __call__(self, tokens):
                x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
                mask = nn.MultiHeadAttention.create_additive_causal_mask(tokens.shape[1], x.dtype)
                y = self.norms[0](x)
                x = x + self.attention(y, y, y, mask)
                return self.norms[2](x + self.linear2(nn.gelu_fast_approx(self.linear1(self.norms[1](x)))))

        class Resnet(nn.Module):
            def __init__(self, inputs, outputs, time=32):
                super().__init__()
                self.norm1 = nn.GroupNorm(4, inputs, pytorch_compatible=True)
                self.norm2 = nn.GroupNorm(4, outputs, pytorch_compatible=True)
                self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
                self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
                self.time = nn.Linear(time, outputs)
                if inputs != outputs:
                    self.shortcut = nn.Linear(inputs, outputs)

            def __call__(self, x, time):
                y = self.conv1(nn.silu(self.norm1(x))) + self.time(nn.silu(time))[:, None, None]
                y = self.conv2(nn.silu(self.norm2(y)))
                return y + (self.shortcut(x) if "shortcut" in self else x)

        class Transformer(nn.Module):
            def __init__(self, dims, memory=24):
                super().__init__()
                self.norm = nn.GroupNorm(4, dims, pytorch_compatible=True)
                self.q, self.out = nn.Linear(dims, dims, bias=False), nn.Linear(dims, dims)
                self.k, self.v = nn.Linear(memory, dims, bias=False), nn.Linear(memory, dims, bias=False)

            def __call__(self, x, memory):
                batch, height, width, dims = x.shape
                y = self.norm(x).reshape(batch, -1, dims)
                q, k, v = (split_heads(p, 4) for p in (self.q(y), self.k(memory), self.v(memory)))
                y = mx.fast.scaled_dot_product_attention(q, k, v, scale=(dims // 4) ** -0.5)
                return x + self.out(merge_heads(y)).reshape(batch, height, width, dims)

        class UNet(nn.Module):
            def __init__(self):
                super().__init__()
                self.timesteps = nn.SinusoidalPositionalEncoding(
                    16, max_freq=1, min_freq=1e-4, cos_first=True, full_turns=False, scale=1.0
                )
                self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
                self.first, self.last = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)
                self.down = [Resnet(8, 8), Resnet(8, 16)]
                self.attention = [Transformer(8), Transformer(16)]
                self.shrink, self.grow = nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.Conv2d(16, 16, 3, padding=1)
                self.up = [Resnet(32, 16), Resnet(24, 8)]
                self.norm = nn.GroupNorm(4, 8, pytorch_compatible=True)

            def __call__(self, x, t, memory):
                time = self.time(self.timesteps(t).astype(x.dtype))
                one = self.attention[0](self.down[0](self.first(x), time), memory)
                two = self.attention[1](self.down[1](self.shrink(one), time), memory)
                x = self.up[0](mx.concatenate([two, two], axis=-1), time)
                batch, height, width, dims = x.shape
                x = mx.broadcast_to(x[:, :, None, :, None], (batch, height, 2, width, 2, dims))
                x = self.grow(x.reshape(batch, 2 * height, 2 * width, dims))
                x = self.up[1](mx.concatenate([x, one], axis=-1), time)
                return self.last(nn.silu(self.norm(x)))

        text, unet = initialize(lib, Text()), initialize(lib, UNet())
        betas = mx.linspace(0.0085**0.5, 0.012**0.5, 20).square()
        kept = mx.cumprod(1 - betas)
        sigmas = mx.sqrt((1 - kept) / kept)
        latents, tokens = lib.normal(2, 8, 8, 4), lib.array(np.random.default_rng(2).integers(0, 30, (2, 6)))
        memory = text(tokens)

        def loss_fn(x, memory):
            t = mx.random.randint(0, 20, (x.shape[0],))
            noise = mx.random.normal(x.shape)
            level = kept[t][:, None, None, None]
            noisy = level.sqrt() * x + (1 - level).sqrt() * noise
            return nn.losses.mse_loss(unet(noisy, t, memory), noise)

        mx.random.seed(5)
        losses = train(lib, unet, lib.optim.AdamW(1e-3), loss_fn, [(latents, memory)] * 3)
        # Euler steps with guidance.
        x = mx.random.normal((1, 8, 8, 4)) * sigmas[19]
        conditions = mx.concatenate([memory[:1], mx.zeros_like(memory[:1])])
        for t in (19, 12, 5):
            both = mx.repeat(x, 2, axis=0) / (sigmas[t].square() + 1).sqrt()
            positive, negative = unet(both, mx.array([t, t]), conditions).split(2)
            step = (sigmas[t - 5] if t > 5 else 0) - sigmas[t]
            x = x + (negative + 3.0 * (positive - negative)) * step
            mx.eval(x)
        return memory, losses, x

    compare(scenario, tol=3e-3)
