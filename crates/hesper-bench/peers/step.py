"""The host's share of a decode step in Python: a Llama of 32 tiny layers in plain `mlx.nn` code.

    python step.py [--steps 300] [--bits 4] [--only hesper|mlx|floor]

Runs the same model over Hesper, over the package `mlx` where it is installed, and over ops that do nothing: the floor, the
time of the interpreter alone. The packages take turns, and each figure is the best of all steps. `build` is the Python
program, `encode` is `async_eval` (plan and encode), `total` ends with the token.
"""

import argparse
import gc
import importlib
import time

HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD, VOCABULARY, CONTEXT = 4, 2, 16, 128, 256, 256
HIDDEN = HEADS * HEAD_DIM


def llama(mx, nn, layers):
    class Cache:
        def __init__(self):
            shape = (1, KV_HEADS, CONTEXT, HEAD_DIM)
            self.keys, self.values, self.offset = mx.zeros(shape), mx.zeros(shape), 0

        def update(self, keys, values):
            begin = self.offset % CONTEXT
            self.offset = end = begin + keys.shape[2]
            self.keys[..., begin:end, :] = keys
            self.values[..., begin:end, :] = values
            return self.keys[..., :end, :], self.values[..., :end, :]

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.n_heads, self.n_kv_heads, self.scale = HEADS, KV_HEADS, HEAD_DIM**-0.5
            self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
            self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
            self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
            self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
            self.rope = nn.RoPE(HEAD_DIM)

        def __call__(self, x, cache):
            B, L, _ = x.shape
            queries, keys, values = self.q_proj(x), self.k_proj(x), self.v_proj(x)
            queries = queries.reshape(B, L, self.n_heads, -1).transpose(0, 2, 1, 3)
            keys = keys.reshape(B, L, self.n_kv_heads, -1).transpose(0, 2, 1, 3)
            values = values.reshape(B, L, self.n_kv_heads, -1).transpose(0, 2, 1, 3)
            queries = self.rope(queries, offset=cache.offset % CONTEXT)
            keys = self.rope(keys, offset=cache.offset % CONTEXT)
            keys, values = cache.update(keys, values)
            output = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=self.scale, mask=None)
            return self.o_proj(output.transpose(0, 2, 1, 3).reshape(B, L, -1))

    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_proj = nn.Linear(HIDDEN, FEED_FORWARD, bias=False)
            self.up_proj = nn.Linear(HIDDEN, FEED_FORWARD, bias=False)
            self.down_proj = nn.Linear(FEED_FORWARD, HIDDEN, bias=False)

        def __call__(self, x):
            return self.down_proj(nn.silu(self.gate_proj(x)) * self.up_proj(x))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn, self.mlp = Attention(), MLP()
            self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)

        def __call__(self, x, cache):
            h = x + self.self_attn(self.input_layernorm(x), cache)
            return h + self.mlp(self.post_attention_layernorm(h))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
            self.layers = [Block() for _ in range(layers)]
            self.norm = nn.RMSNorm(HIDDEN)
            self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

        def __call__(self, tokens, cache):
            h = self.embed_tokens(tokens)
            for layer, of_layer in zip(self.layers, cache):
                h = layer(h, of_layer)
            return self.lm_head(self.norm(h))

    return Model(), [Cache() for _ in range(layers)]


class Nothing:
    """An array whose operations do nothing."""

    __slots__ = ()
    shape = (1, 1, HIDDEN)
    T = property(lambda self: self)

    def _same(self, *args, **kwargs):
        return self

    __add__ = __mul__ = __matmul__ = __getitem__ = reshape = transpose = astype = _same

    def __setitem__(self, key, value):
        pass

    def item(self):
        return 0


NOTHING = Nothing()


def nothing(*args, **kwargs):
    return NOTHING


class Floor:
    """Replaces the functions of a package by `nothing` while it is entered."""

    def __init__(self, mx, nn):
        fast = ["rms_norm", "rope", "scaled_dot_product_attention"]
        plain = ["argmax", "zeros", "async_eval", "addmm", "quantized_matmul", "dequantize"]
        self.places = [(mx.fast, name) for name in fast] + [(mx, name) for name in plain] + [(nn, "silu")]
        self.places += [(layer, "__call__") for layer in (nn.Linear, nn.QuantizedLinear, nn.RMSNorm)]

    def __enter__(self):
        self.kept = [getattr(module, name) for module, name in self.places]
        for module, name in self.places:
            setattr(module, name, nothing)

    def __exit__(self, *_):
        for (module, name), function in zip(self.places, self.kept):
            setattr(module, name, function)


class Decoder:
    def __init__(self, package, layers, bits):
        self.mx, self.nn = (importlib.import_module(f"{package}.{name}") for name in ("core", "nn"))
        self.model, self.cache = llama(self.mx, self.nn, layers)
        if bits:
            self.nn.quantize(self.model, group_size=32, bits=bits)
        self.mx.eval(self.model.parameters(), [(one.keys, one.values) for one in self.cache])
        self.token = self.mx.array([[1]])
        self.best = [float("inf")] * 3

    def make_floor(self):
        """Keeps the program and replaces every array."""
        for _, module in self.model.named_modules():
            for name, value in module.items():
                if isinstance(value, self.mx.array):
                    module[name] = NOTHING
        for one in self.cache:
            one.keys = one.values = NOTHING
        self.token = NOTHING

    def step(self):
        mx = self.mx
        begun = time.perf_counter()
        self.token = mx.argmax(self.model(self.token, self.cache), axis=-1)
        built = time.perf_counter()
        mx.async_eval(self.token, [(one.keys, one.values) for one in self.cache])
        encoded = time.perf_counter()
        self.token.item()
        times = built - begun, encoded - built, time.perf_counter() - begun
        self.best = [min(pair) for pair in zip(self.best, times)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--bits", type=int, default=0)
    parser.add_argument("--only")
    args = parser.parse_args()
    decoders = {}
    for name in [args.only] if args.only else ["hesper", "mlx", "floor"]:
        try:
            decoders[name] = Decoder("hesper" if name == "floor" else name, args.layers, args.bits)
        except ImportError:
            print(f"{name} is not installed")
    if "floor" in decoders:
        decoders["floor"].make_floor()
    gc.disable()
    for _ in range(args.steps):
        for name, decoder in decoders.items():
            if name == "floor":
                with Floor(decoder.mx, decoder.nn):
                    decoder.step()
            else:
                decoder.step()
    for name, decoder in decoders.items():
        build, encode, total = (1e3 * best for best in decoder.best)
        print(f"{name:6}  build {build:6.3f} ms   encode {encode:6.3f} ms   total {total:6.3f} ms")


if __name__ == "__main__":
    main()
