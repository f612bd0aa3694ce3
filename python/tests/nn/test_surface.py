"""The public names, their signatures and their documentation."""

import doctest
import importlib
import inspect

import pytest
from differential import HESPER, MLX, needs_mlx, plain_text

SURFACE = {
    "nn": """
        ALiBi AllToShardedLinear AvgPool1d AvgPool2d AvgPool3d BatchNorm Bilinear CELU
        Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Dropout
        Dropout2d Dropout3d ELU Embedding FullyShardedModule GELU GLU GRU GroupNorm
        HardShrink HardTanh Hardswish Identity InstanceNorm LSTM LayerNorm LeakyReLU
        Linear LogSigmoid LogSoftmax MaxPool1d MaxPool2d MaxPool3d Mish Module
        MultiHeadAttention PReLU QQLinear QuantizedAllToShardedLinear QuantizedEmbedding
        QuantizedLinear QuantizedShardedToAllLinear RMSNorm RNN ReLU ReLU2 ReLU6 RoPE
        SELU Sequential ShardedToAllLinear SiLU Sigmoid SinusoidalPositionalEncoding
        Softmax Softmin Softplus Softshrink Softsign Step Tanh Transformer
        TransformerDecoder TransformerDecoderLayer TransformerEncoder
        TransformerEncoderLayer Upsample average_gradients celu elu fully_shard gelu
        gelu_approx gelu_fast_approx glu hard_shrink hard_tanh hardswish leaky_relu
        log_sigmoid log_softmax mish prelu quantize relu relu2 relu6 selu sigmoid silu
        softmax softmin softplus softshrink softsign step tanh value_and_grad""",
    "nn.losses": """
        Literal Optional Reduction binary_cross_entropy cosine_similarity_loss
        cross_entropy gaussian_nll_loss get_args hinge_loss huber_loss kl_div_loss
        l1_loss log_cosh_loss margin_ranking_loss mse_loss nll_loss smooth_l1_loss
        triplet_loss""",
    "nn.init": """
        Callable Literal constant glorot_normal glorot_uniform he_normal he_uniform
        identity normal orthogonal sparse uniform""",
    "nn.Module": """
        apply apply_to_modules children clear copy eval filter_and_map freeze fromkeys
        get is_module items keys leaf_modules load_weights modules named_modules
        parameters pop popitem save_weights set_dtype setdefault state train
        trainable_parameter_filter trainable_parameters training unfreeze update
        update_modules valid_child_filter valid_parameter_filter values""",
    "optimizers": """
        AdaDelta Adafactor Adagrad Adam AdamW Adamax Callable Lion List Module
        MultiOptimizer Muon Optimizer Optional RMSprop SGD Tuple Union clip_grad_norm
        cosine_decay exponential_decay join_schedules linear_schedule step_decay
        tree_flatten tree_map tree_merge tree_reduce tree_unflatten""",
    "utils": """
        Any Callable Dict List Optional Tuple Union defaultdict tree_flatten tree_map
        tree_map_with_path tree_merge tree_reduce tree_unflatten zip_longest""",
    # Not in the table of public names, but imported by programs.
    "nn.utils": "average_gradients checkpoint clip_grad_norm_sharded value_and_grad",
    "nn.layers.distributed": "shard_inplace shard_linear sum_gradients",
    "nn.layers.upsample": "upsample_cubic upsample_linear upsample_nearest",
}

DOCUMENTED_MODULES = [
    "hesper.utils",
    "hesper.nn",
    "hesper.nn.init",
    "hesper.nn.losses",
    "hesper.nn.utils",
    *(
        f"hesper.nn.layers.{name}"
        for name in (
            "activations base containers convolution convolution_transpose distributed "
            "dropout embedding fully_sharded functional linear normalization pooling "
            "positional_encoding quantized recurrent transformer upsample"
        ).split()
    ),
    "hesper.optimizers",
    *(
        f"hesper.optimizers.{name}"
        for name in "adafactor adaptive base momentum schedulers".split()
    ),
]


def look_up(library, path):
    obj = importlib.import_module(library)
    for part in path.split("."):
        if not hasattr(obj, part):
            importlib.import_module(f"{obj.__name__}.{part}")
        obj = getattr(obj, part)
    return obj


@pytest.mark.parametrize("section", SURFACE)
def test_every_public_name_exists(section):
    holder = look_up("hesper", section)
    missing = [name for name in SURFACE[section].split() if not hasattr(holder, name)]
    assert not missing


def signature(fn):
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return None


def described(value):
    """A default value, by what it means rather than by its identity."""
    if value is inspect.Parameter.empty:
        return "no default"
    if callable(value):
        return getattr(value, "__name__", "callable")
    return plain_text(repr(value)).rsplit("hesper.core.", 1)[-1]


def outline(fn, method=False):
    """Names, kinds and defaults of parameters; the name of ``self`` does not matter."""
    parameters = list(signature(fn).parameters.values())[1 if method else 0 :]
    return [(p.name, p.kind.name, described(p.default)) for p in parameters]


CALLABLES = [
    (section, name)
    for section, names in SURFACE.items()
    for name in names.split()
    if section != "nn.Module" and callable(getattr(look_up("hesper", section), name))
    and getattr(getattr(look_up("hesper", section), name), "__module__", "").startswith("hesper")
]


@needs_mlx
@pytest.mark.parametrize("section, name", CALLABLES)
def test_signatures_are_those_of_mlx(section, name):
    ours, theirs = (getattr(look_up(lib, section), name) for lib in ("hesper", "mlx"))
    if signature(ours) is None or signature(theirs) is None:
        pytest.skip("no signature")
    assert outline(ours) == outline(theirs)
    if not inspect.isclass(ours):
        return
    for method, implementation in vars(theirs).items():
        public = not method.startswith("_") or method == "__call__"
        if not public:
            continue
        if isinstance(implementation, property):
            mine = inspect.getattr_static(ours, method)
            assert isinstance(mine, property)
            assert (mine.fset is None) == (implementation.fset is None), method
            continue
        if isinstance(implementation, (staticmethod, classmethod)):
            mine = inspect.getattr_static(ours, method)
            assert type(mine) is type(implementation), method
        elif not callable(implementation):
            continue
        bound = not isinstance(implementation, staticmethod)
        bound = bound and not isinstance(implementation, classmethod)
        assert outline(getattr(ours, method), bound) == outline(
            getattr(theirs, method), bound
        ), method


@needs_mlx
def test_module_methods_have_the_signatures_of_mlx():
    for name in SURFACE["nn.Module"].split():
        ours, theirs = (inspect.getattr_static(lib.nn.Module, name) for lib in (HESPER, MLX))
        if isinstance(theirs, property):
            assert isinstance(ours, property)
        elif isinstance(theirs, staticmethod):
            assert outline(ours.__func__) == outline(theirs.__func__), name
        elif inspect.isfunction(theirs):
            assert outline(ours, True) == outline(theirs, True), name


@needs_mlx
def test_classes_are_related_as_in_mlx():
    for section in ("nn", "optimizers"):
        ours, theirs = look_up("hesper", section), look_up("mlx", section)
        classes = {
            name
            for name in SURFACE[section].split()
            if inspect.isclass(getattr(theirs, name))
            and getattr(theirs, name).__module__.startswith("mlx")
        }
        for a in classes:
            for b in classes:
                assert issubclass(getattr(ours, a), getattr(ours, b)) == issubclass(
                    getattr(theirs, a), getattr(theirs, b)
                ), (a, b)


@pytest.mark.parametrize("name", DOCUMENTED_MODULES)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(recurse=True)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    output = []
    names = {"mx": HESPER.mx, "nn": HESPER.nn, "optim": HESPER.optim}
    for obj_name in [None, *getattr(module, "__all__", [])]:
        obj = module if obj_name is None else getattr(module, obj_name)
        own = getattr(obj, "__module__", name)
        if obj_name is None:
            tests = doctest.DocTestFinder(recurse=False).find(obj, name, globs=names.copy())
        elif own != name or inspect.ismodule(obj):
            continue
        else:
            tests = finder.find(obj, f"{name}.{obj_name}", module=False, globs=names)
        for test in tests:
            runner.run(test, out=output.append)
    assert runner.failures == 0, "".join(output)


def documented_objects():
    seen = set()
    for section in SURFACE:
        holder = look_up("hesper", section)
        for name in SURFACE[section].split():
            obj = inspect.getattr_static(holder, name)
            origin = getattr(getattr(obj, "fget", None) or getattr(obj, "__func__", obj), "__module__", None)
            if not (origin or "").startswith("hesper") or id(obj) in seen:
                continue
            seen.add(id(obj))
            yield f"{section}.{name}", obj


@pytest.mark.parametrize("name, obj", list(documented_objects()))
def test_every_public_name_is_documented_with_an_example(name, obj):
    text = inspect.getdoc(obj) or ""
    assert text.splitlines()[0].rstrip(":").strip()
    assert "Examples\n--------" in text
    for method, implementation in vars(obj).items() if inspect.isclass(obj) else ():
        function = getattr(implementation, "fget", None) or getattr(
            implementation, "__func__", implementation
        )
        if method.startswith("_") or not inspect.isfunction(function):
            continue
        # What overrides a documented method may inherit its documentation.
        text = inspect.getdoc(getattr(obj, method)) or ""
        assert "Examples\n--------" in text, f"{name}.{method}"


def test_all_lists_name_what_exists():
    for name in DOCUMENTED_MODULES:
        module = importlib.import_module(name)
        assert module.__all__ and all(hasattr(module, n) for n in module.__all__), name
        assert len(set(module.__all__)) == len(module.__all__), name
