"""Layers compared with those of MLX: parameters, results, errors, representations."""

import numpy as np
import pytest
from differential import (
    HESPER,
    attempt,
    compare,
    needs_mlx,
    needs_same_random,
    set_numbers,
    to_numpy,
)


def case(layer, *shapes, tol=None, **call):
    return layer, shapes, call, tol


# Layer, then the shapes of its inputs.
CASES = {
    "linear": case(lambda nn: nn.Linear(3, 4), (2, 3)),
    "linear of a vector": case(lambda nn: nn.Linear(3, 4), (3,)),
    "linear of a batch": case(lambda nn: nn.Linear(3, 4), (2, 5, 3)),
    "linear without bias": case(lambda nn: nn.Linear(3, 4, bias=False), (2, 3)),
    "linear with wrong input": case(lambda nn: nn.Linear(3, 4), (2, 4)),
    "bilinear": case(lambda nn: nn.Bilinear(3, 4, 5), (2, 3), (2, 4)),
    "bilinear of vectors": case(lambda nn: nn.Bilinear(3, 4, 5), (3,), (4,)),
    "bilinear of batches": case(lambda nn: nn.Bilinear(3, 4, 5, bias=False), (2, 6, 3), (2, 6, 4)),
    "identity": case(lambda nn: nn.Identity(1, x=2), (2, 3)),
    "sequential": case(lambda nn: nn.Sequential(nn.Linear(3, 4), nn.relu, nn.Linear(4, 2)), (5, 3)),
    "conv1d": case(lambda nn: nn.Conv1d(4, 6, 3), (2, 8, 4)),
    "conv1d with settings": case(lambda nn: nn.Conv1d(4, 6, 3, 2, 1, 2, 2, False), (1, 9, 4)),
    "conv1d with a tuple": case(lambda nn: nn.Conv1d(4, 6, (3,)), (1, 9, 4)),
    "conv1d with wrong groups": case(lambda nn: nn.Conv1d(4, 6, 3, groups=3), (1, 9, 4)),
    "conv1d with wrong input": case(lambda nn: nn.Conv1d(4, 6, 3), (9, 4)),
    "conv2d": case(lambda nn: nn.Conv2d(4, 6, 3), (2, 8, 7, 4)),
    "conv2d with settings": case(
        lambda nn: nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), (2, 1), 2, False), (1, 8, 8, 4)
    ),
    "conv2d with lists": case(lambda nn: nn.Conv2d(4, 6, [3, 2], [2, 1]), (1, 8, 8, 4)),
    "conv2d with wrong groups": case(lambda nn: nn.Conv2d(4, 6, 3, groups=3), (1, 8, 8, 4)),
    "conv3d": case(lambda nn: nn.Conv3d(2, 3, 3), (1, 5, 6, 5, 2)),
    "conv3d with settings": case(
        lambda nn: nn.Conv3d(2, 3, (3, 2, 1), (2, 1, 1), 1, (2, 1, 1), False), (1, 6, 5, 4, 2)
    ),
    "transposed conv1d": case(lambda nn: nn.ConvTranspose1d(4, 6, 3), (2, 8, 4)),
    "transposed conv1d with settings": case(
        lambda nn: nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, 1, False), (1, 8, 4)
    ),
    "transposed conv2d": case(lambda nn: nn.ConvTranspose2d(4, 6, 3), (1, 6, 5, 4)),
    "transposed conv2d with settings": case(
        lambda nn: nn.ConvTranspose2d(4, 6, (3, 2), 2, (1, 0), 1, (1, 0), False), (1, 5, 5, 4)
    ),
    "transposed conv3d": case(lambda nn: nn.ConvTranspose3d(2, 3, 2), (1, 3, 4, 3, 2)),
    "transposed conv3d with settings": case(
        lambda nn: nn.ConvTranspose3d(2, 3, (3, 2, 2), 2, 1, 1, (1, 0, 1), False), (1, 4, 4, 4, 2)
    ),
    "layer norm": case(lambda nn: nn.LayerNorm(4), (2, 3, 4)),
    "layer norm without bias": case(lambda nn: nn.LayerNorm(4, bias=False), (2, 4)),
    "layer norm not affine": case(lambda nn: nn.LayerNorm(4, eps=1e-3, affine=False), (2, 4)),
    "rms norm": case(lambda nn: nn.RMSNorm(4, eps=1e-3), (2, 4)),
    "instance norm": case(lambda nn: nn.InstanceNorm(4), (2, 3, 4)),
    "instance norm of images": case(lambda nn: nn.InstanceNorm(4, 1e-3, True), (2, 3, 5, 4)),
    "instance norm of too little": case(lambda nn: nn.InstanceNorm(4), (2, 4)),
    "group norm": case(lambda nn: nn.GroupNorm(2, 6), (2, 3, 5, 6)),
    "group norm not affine": case(lambda nn: nn.GroupNorm(3, 6, 1e-3, False), (2, 6)),
    "group norm like pytorch": case(lambda nn: nn.GroupNorm(2, 6, pytorch_compatible=True), (2, 3, 5, 6)),
    "group norm like pytorch of a matrix": case(
        lambda nn: nn.GroupNorm(3, 6, pytorch_compatible=True), (2, 6)
    ),
    "group norm with wrong groups": case(lambda nn: nn.GroupNorm(3, 4), (2, 4)),
    "batch norm": case(lambda nn: nn.BatchNorm(4), (5, 4)),
    "batch norm of sequences": case(lambda nn: nn.BatchNorm(4, 1e-3, 0.3), (2, 3, 4)),
    "batch norm of images": case(lambda nn: nn.BatchNorm(4), (2, 3, 3, 4)),
    "batch norm of an empty batch": case(lambda nn: nn.BatchNorm(4), (2, 0, 4)),
    "batch norm, evaluating": case(lambda nn: nn.BatchNorm(4).eval(), (2, 4)),
    "batch norm without anything": case(lambda nn: nn.BatchNorm(4, affine=False, track_running_stats=False), (3, 4)),
    "batch norm without anything, evaluating": case(
        lambda nn: nn.BatchNorm(4, affine=False, track_running_stats=False).eval(), (1, 4)
    ),
    "batch norm of one value": case(lambda nn: nn.BatchNorm(4), (1, 4)),
    "batch norm of volumes": case(lambda nn: nn.BatchNorm(4), (2, 2, 2, 2, 4)),
    "batch norm of a vector": case(lambda nn: nn.BatchNorm(4), (4,)),
    "dropout, evaluating": case(lambda nn: nn.Dropout(0.3).eval(), (2, 4)),
    "dropout of nothing": case(lambda nn: nn.Dropout(0.0), (2, 4)),
    "dropout of all": case(lambda nn: nn.Dropout(1.0), (2, 4)),
    "dropout with negative probability": case(lambda nn: nn.Dropout(-0.1), (2, 4)),
    "dropout2d of a matrix": case(lambda nn: nn.Dropout2d(0.3), (2, 4)),
    "dropout2d, evaluating": case(lambda nn: nn.Dropout2d(0.3).eval(), (2, 3, 4)),
    "dropout3d of images": case(lambda nn: nn.Dropout3d(0.3), (2, 3, 4)),
    "dropout3d, evaluating": case(lambda nn: nn.Dropout3d().eval(), (2, 3, 3, 4)),
    "rnn": case(lambda nn: nn.RNN(3, 4), (5, 3)),
    "rnn of a batch": case(lambda nn: nn.RNN(3, 4, bias=False), (2, 5, 3)),
    "rnn of two batch axes": case(lambda nn: nn.RNN(3, 4), (2, 2, 5, 3)),
    "rnn with relu": case(lambda nn: nn.RNN(3, 4, nonlinearity=nn.relu), (5, 3)),
    "rnn from a state": case(lambda nn: nn.RNN(3, 4), (5, 3), (4,)),
    "rnn of a vector": case(lambda nn: nn.RNN(3, 4), (3,)),
    "rnn of nothing": case(lambda nn: nn.RNN(3, 4), (0, 3)),
    "rnn with a number": case(lambda nn: nn.RNN(3, 4, nonlinearity=3), (5, 3)),
    "gru": case(lambda nn: nn.GRU(3, 4), (5, 3)),
    "gru of a batch": case(lambda nn: nn.GRU(3, 4, bias=False), (2, 5, 3)),
    "gru from a state": case(lambda nn: nn.GRU(3, 4), (2, 5, 3), (2, 4)),
    "gru from a state without bias": case(lambda nn: nn.GRU(3, 4, False), (2, 5, 3), (2, 4)),
    "lstm": case(lambda nn: nn.LSTM(3, 4), (5, 3)),
    "lstm of a batch": case(lambda nn: nn.LSTM(3, 4, bias=False), (2, 5, 3)),
    "lstm from a state": case(lambda nn: nn.LSTM(3, 4), (2, 5, 3), (2, 4), (2, 4)),
    "lstm from a hidden state": case(lambda nn: nn.LSTM(3, 4), (2, 5, 3), (2, 4)),
    "attention": case(lambda nn: nn.MultiHeadAttention(8, 2), (2, 3, 8), (2, 4, 8), (2, 4, 8)),
    "attention with a mask": case(lambda nn: nn.MultiHeadAttention(8, 4), (2, 3, 8), (2, 3, 8), (2, 3, 8), (3, 3)),
    "attention with all sizes": case(
        lambda nn: nn.MultiHeadAttention(8, 2, 3, 4, 5, 6, 7, True), (2, 3, 3), (2, 4, 4), (2, 4, 5)
    ),
    "attention with key size": case(
        lambda nn: nn.MultiHeadAttention(8, 2, key_input_dims=4), (2, 3, 8), (2, 4, 4), (2, 4, 4)
    ),
    "attention of matrices": case(lambda nn: nn.MultiHeadAttention(8, 2), (3, 8), (4, 8), (4, 8)),
    "attention with wrong heads": case(lambda nn: nn.MultiHeadAttention(9, 2), (2, 3, 9)),
    "encoder layer": case(lambda nn: nn.TransformerEncoderLayer(8, 2), (2, 3, 8), (3, 3)),
    "encoder layer, norm last": case(
        lambda nn: nn.TransformerEncoderLayer(8, 2, 5, activation=nn.gelu, norm_first=False),
        (2, 3, 8), (3, 3),
    ),
    "decoder layer": case(
        lambda nn: nn.TransformerDecoderLayer(8, 2), (2, 3, 8), (2, 4, 8), (3, 3), (3, 4)
    ),
    "decoder layer, norm last": case(
        lambda nn: nn.TransformerDecoderLayer(8, 2, norm_first=False), (2, 3, 8), (2, 4, 8), (3, 3), (3, 4)
    ),
    "encoder": case(lambda nn: nn.TransformerEncoder(2, 8, 2), (2, 3, 8), (3, 3)),
    "encoder with checkpoints": case(
        lambda nn: nn.TransformerEncoder(2, 8, 2, checkpoint=True), (2, 3, 8), (3, 3)
    ),
    "decoder with checkpoints": case(
        lambda nn: nn.TransformerDecoder(2, 8, 2, checkpoint=True), (2, 3, 8), (2, 4, 8), (3, 3), (3, 4)
    ),
    "transformer": case(
        lambda nn: nn.Transformer(8, 2, 1, 2, 12, activation=nn.silu),
        (2, 4, 8), (2, 3, 8), (4, 4), (3, 3), (3, 4),
    ),
    "transformer, norm last": case(
        lambda nn: nn.Transformer(8, 2, 1, 1, norm_first=False), (2, 4, 8), (2, 3, 8), (4, 4), (3, 3), (3, 4)
    ),
    "alibi": case(lambda nn: nn.ALiBi(), (1, 4, 3, 5)),
    "alibi with offset and mask": case(lambda nn: nn.ALiBi(), (1, 6, 3, 5), offset=2, mask=(3, 5)),
    "rope": case(lambda nn: nn.RoPE(4), (1, 2, 3, 4)),
    "rope of a batch of matrices": case(lambda nn: nn.RoPE(4), (2, 3, 6)),
    "rope with settings": case(lambda nn: nn.RoPE(4, True, 100.0, 0.5), (1, 2, 3, 8), offset=5),
    "rope of a matrix": case(lambda nn: nn.RoPE(4), (3, 4)),
    "sines": case(lambda nn: nn.SinusoidalPositionalEncoding(6), (5,)),
    "sines of a matrix": case(lambda nn: nn.SinusoidalPositionalEncoding(8, 0.01, 2, 0.3, True, True), (2, 5)),
    "sines of two": case(lambda nn: nn.SinusoidalPositionalEncoding(2), (5,)),
    "sines of five": case(lambda nn: nn.SinusoidalPositionalEncoding(5), (5,)),
    "sines of none": case(lambda nn: nn.SinusoidalPositionalEncoding(0), (5,)),
}  # fmt: skip

for kind in ("Max", "Avg"):
    for axes, sizes in ((1, (9,)), (2, (9, 8)), (3, (5, 6, 4))):
        shape = (2, *sizes, 3)
        for name, arguments in {
            "tiles": (2,),
            "overlap": (3, 1),
            "pads": (3, 2, 1),
            "leaves gaps": (2, 3),
            "has tuples": (tuple(range(2, 2 + axes)), (1,) * axes, (1,) + (0,) * (axes - 1)),
            "has a list": ([2] * axes,),
            "has a long tuple": ((2,) * (axes + 1),),
            "has a wrong stride": (2, (1,) * (axes + 1)),
            "has no padding": (2, None, None),
            "has a float": (2.0,),
        }.items():
            CASES[f"{kind} pooling in {axes}d {name}"] = case(
                lambda nn, c=f"{kind}Pool{axes}d", a=arguments: getattr(nn, c)(*a), shape
            )
        CASES[f"{kind} pooling in {axes}d of few axes"] = case(
            lambda nn, c=f"{kind}Pool{axes}d": getattr(nn, c)(2), (4, 3)
        )

for mode in ("nearest", "linear", "cubic"):
    for factor in (2, 3, 1.5, 0.5, 2.5, 1, 0.7, (2, 3), (1.5, 0.5), (2, 2, 2), [2, 2]):
        for corners in (False, True):
            for antialias in (False, True):
                CASES[f"upsampling {mode} {factor} {corners} {antialias}"] = case(
                    lambda nn, a=(factor, mode, corners, antialias): nn.Upsample(*a),
                    (2, 5, 4, 3),
                    tol=2e-5,
                )
CASES["upsampling of a sequence"] = case(lambda nn: nn.Upsample(2, "linear"), (1, 5, 2))
CASES["upsampling of a volume"] = case(lambda nn: nn.Upsample((2, 1.5, 3), "linear"), (1, 3, 4, 3, 2))
CASES["upsampling of a matrix"] = case(lambda nn: nn.Upsample(2), (5, 2))
CASES["upsampling by an unknown mode"] = case(lambda nn: nn.Upsample(2, "best"), (1, 5, 2))


@pytest.mark.parametrize("name", CASES)
def test_layer(name):
    make, shapes, call, tol = CASES[name]

    def scenario(lib):
        layer = attempt(make, lib.nn)
        if isinstance(layer, str):
            return layer
        set_numbers(lib, layer)
        inputs = [lib.normal(*shape, seed=i) for i, shape in enumerate(shapes)]
        keywords = {k: lib.normal(*v) if isinstance(v, tuple) else v for k, v in call.items()}
        result = attempt(layer, *inputs, **keywords)
        # The layer again: a call may have changed its state.
        return layer.parameters(), result, repr(layer), sorted(layer), frozen(layer)

    compare(scenario, tol)


def frozen(layer):
    return [sorted(module._no_grad) for module in layer.modules()]


@pytest.mark.parametrize(
    "name",
    ["linear", "conv2d", "layer norm", "rms norm", "instance norm of images", "group norm", "batch norm",
     "group norm like pytorch", "gru", "lstm", "attention with a mask", "Max pooling in 2d overlap",
     "Avg pooling in 2d pads", "upsampling nearest 2 False False", "upsampling linear 1.5 False False", "rope", "sines"],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("convert", [True, False], ids=["all half", "input half"])
def test_layer_in_half_precision(name, dtype, convert):
    make, shapes, call, _ = CASES[name]

    def scenario(lib):
        layer = set_numbers(lib, make(lib.nn))
        if convert:
            layer.set_dtype(getattr(lib.mx, dtype))
        inputs = [lib.normal(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)]
        return layer(*inputs, **call), layer.parameters()

    # Statistics in half precision are rounded in another order than the reference's.
    compare(scenario, tol={"float16": 4e-3, "bfloat16": 3e-2}[dtype])


@pytest.mark.parametrize(
    "name",
    ["linear", "bilinear", "conv1d", "conv2d", "layer norm", "instance norm", "group norm", "batch norm", "rnn",
     "gru of a batch", "lstm", "attention", "encoder layer", "encoder with checkpoints", "decoder with checkpoints",
     "transformer", "Max pooling in 2d tiles", "Avg pooling in 1d pads", "upsampling cubic 2 False False"],
)  # fmt: skip
def test_gradients_of_layers(name):
    make, shapes, call, _ = CASES[name]

    def scenario(lib):
        layer = set_numbers(lib, make(lib.nn))
        x, *rest = (lib.normal(*shape, seed=i) for i, shape in enumerate(shapes))

        def loss(x):
            y = layer(x, *rest)
            y = y[0] if isinstance(y, tuple) else y
            return lib.mx.square(y).sum()

        by_input = lib.mx.grad(loss)(x)
        if not lib.utils.tree_flatten(layer.trainable_parameters()):
            return by_input
        return by_input, lib.nn.value_and_grad(layer, loss)(x)

    compare(scenario, tol=1e-4)


def test_embedding():
    def scenario(lib):
        layer = set_numbers(lib, lib.nn.Embedding(5, 6))
        return [
            repr(layer),
            layer(lib.array([[1, 2], [4, 0]])),
            layer(lib.array(3)),
            attempt(layer, lib.normal(2)),
            layer.as_linear(lib.normal(2, 6)),
        ]

    compare(scenario)


def test_batch_norm_keeps_running_statistics():
    def scenario(lib):
        layer = lib.nn.BatchNorm(3)
        log = [sorted(layer._no_grad), layer.unfreeze(), sorted(layer._no_grad)]
        for step in range(3):
            layer(lib.normal(4, 5, 3, seed=step))
            log.append(layer.parameters())
        log.append(layer.eval()(lib.normal(4, 3)))
        layer.freeze()
        layer.unfreeze(keys=["running_mean", "bias"])
        log.append(sorted(layer._no_grad))
        return log

    compare(scenario)


def test_masks_and_slopes():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn
        masks = [
            attempt(nn.MultiHeadAttention.create_additive_causal_mask, 3, d)
            for d in (mx.float32, mx.float16, mx.bfloat16, mx.int32)
        ]
        slopes = [nn.ALiBi.create_alibi_slope(heads) for heads in (1, 2, 3, 4, 6, 8, 12)]
        matrices = [
            nn.ALiBi.create_alibi_matrix(4, 3, 2, offset, d)
            for offset in (0, 1) for d in (mx.float32, mx.bfloat16)
        ]
        return masks, slopes, matrices

    compare(scenario)


def test_attention_takes_boolean_and_causal_masks():
    def scenario(lib):
        layer = set_numbers(lib, lib.nn.MultiHeadAttention(8, 2))
        x = lib.normal(1, 3, 8)
        causal = lib.array(np.tril(np.ones((3, 3), dtype=bool)))
        return layer(x, x, x, causal), layer(x, x, x, "causal")

    compare(scenario)


def test_rope_takes_an_array_as_offset():
    compare(lambda lib: lib.nn.RoPE(4)(lib.normal(1, 2, 3, 4), offset=lib.array(3)))


def test_pooling_of_integers():
    def scenario(lib):
        x = lib.array(np.arange(6).reshape(1, 6, 1))
        return lib.nn.MaxPool1d(2, padding=1)(x), lib.nn.AvgPool1d(2, padding=1)(x)

    compare(scenario)


def test_custom_encoder_and_decoder_without_items():
    compare(
        lambda lib: repr(lib.nn.Transformer(8, 2, 1, 1, custom_encoder=lib.nn.ReLU(), custom_decoder=lib.nn.Tanh()))
    )


@needs_mlx
@needs_same_random
@pytest.mark.parametrize("name", [n for n in CASES if "pooling" not in n and "upsampling" not in n])
def test_parameters_start_from_the_same_random_numbers(name):
    def scenario(lib):
        lib.mx.random.seed(3)
        layer = attempt(CASES[name][0], lib.nn)
        return layer if isinstance(layer, str) else layer.parameters()

    compare(scenario)


@needs_mlx
@needs_same_random
@pytest.mark.parametrize("name, shape", [("Dropout", (4, 5)), ("Dropout2d", (2, 3, 4, 5)), ("Dropout2d", (3, 4, 5)),
                                         ("Dropout3d", (2, 2, 3, 4, 5)), ("Dropout3d", (2, 3, 4, 5))])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_dropout_drops_the_same(name, shape, dtype):
    def scenario(lib):
        lib.mx.random.seed(3)
        return getattr(lib.nn, name)(0.3)(lib.normal(*shape).astype(getattr(lib.mx, dtype)))

    compare(scenario)


def test_dropout_keeps_the_expected_value():
    y = to_numpy(HESPER.nn.Dropout(0.25)(HESPER.mx.ones((200, 200))))
    assert set(np.unique(y.round(4))) == {np.float32(0.0), np.float32(1.3333)}
    assert abs(y.mean() - 1) < 0.02
    z = to_numpy(HESPER.nn.Dropout2d(0.5)(HESPER.mx.ones((8, 6, 6, 16))))
    assert (z == z[:, :1, :1]).all() and 0.3 < (z > 0).mean() < 0.7
