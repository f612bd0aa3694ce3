"""Every name and signature of ``mlx.core`` is there, but for those that are listed here."""

import hesper.core as mx

from surface import accepts, differences

# What is not there yet. Whoever adds something takes it off the list; the test says so.
MISSING = set()

# ``arange`` has two overloads, of which one names its first argument ``stop``; the default of ``from_fp8`` is a type,
# which a signature cannot show; ``save_gguf`` may leave its metadata out.
DIFFERENT = {"arange", "from_fp8", "save_gguf"}


def test_every_name_of_the_reference_is_there(mlx):
    missing, _ = differences(mx, mlx)
    assert set(missing) == MISSING


def test_every_signature_takes_the_calls_of_the_reference(mlx):
    _, differing = differences(mx, mlx)
    assert set(differing) == DIFFERENT


def test_a_signature_that_asks_for_more_is_noticed():
    other = [("both", "a", ""), ("keyword", "stream", "None")]
    assert accepts([("both", "a", ""), ("both", "stream", "None")], other)
    assert not accepts([("positional", "a", ""), ("keyword", "stream", "None")], other)
    assert not accepts([("both", "a", "")], other)


def test_array_has_the_namespace_of_the_array_api():
    namespace = mx.array(1).__array_namespace__()
    for name in "abs add argmax astype concat matmul permute_dims sum unstack vecdot where isdtype".split():
        assert callable(getattr(namespace, name))
