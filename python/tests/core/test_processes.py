"""Communication in a group of one process, and the errors of larger groups."""

import pytest

import hesper.core as mx

COLLECTIVES = [mx.distributed.all_sum, mx.distributed.all_max, mx.distributed.all_min, mx.distributed.all_gather,
               mx.distributed.sum_scatter]  # fmt: skip


class Pair:
    """A group of two, which cannot be made here."""

    def size(self):
        return 2

    def rank(self):
        return 0


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_collective_over_one_process_returns_its_input(collective):
    x = mx.array([1.0, 2.0])
    for group in (None, mx.distributed.init(), mx.distributed.init(backend="ring")):
        assert collective(x, group=group) is x
    assert mx.grad(lambda x: collective(x).sum())(x).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_collective_over_more_processes_says_what_is_missing(collective):
    with pytest.raises(RuntimeError, match=f"{collective.__name__} over 2 processes.*no backend.*init"):
        collective(mx.ones(2), group=Pair())
    with pytest.raises(TypeError, match="over a str"):
        collective(mx.ones(2), group="world")
    with pytest.raises(TypeError, match="a str; expected an array"):
        collective("x")
    assert collective(1.5).tolist() == 1.5


def test_one_process_has_nobody_to_talk_to():
    group = mx.distributed.init()
    assert (group.rank(), group.size()) == (0, 1)
    x = mx.ones(1)
    for call in (
        lambda: mx.distributed.send(x, 1),
        lambda: mx.distributed.recv((1,), mx.float32, 1),
        lambda: mx.distributed.recv_like(x, 1),
    ):
        with pytest.raises(ValueError, match="rank 1.*no backend"):
            call()
    with pytest.raises(RuntimeError, match="one process"):
        group.split(0)


@pytest.mark.parametrize("backend", ["any", "mpi", "nccl", "jaccl", "ring"])
def test_no_backend_is_available(backend):
    assert not mx.distributed.is_available(backend)
    assert mx.distributed.init(backend=backend).size() == 1
    with pytest.raises(RuntimeError, match=f"{backend}.*no backend.*strict=False"):
        mx.distributed.init(strict=True, backend=backend)


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="'post'.*ring"):
        mx.distributed.init(backend="post")
