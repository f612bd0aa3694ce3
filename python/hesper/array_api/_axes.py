"""Axes as arguments."""

from operator import index


def place_of(function, axis, ndim):
    """The place of an axis among ``ndim``, counted from the first; an error that names the function outside of them."""
    if not -ndim <= index(axis) < ndim:
        raise IndexError(f"{function}: axis {axis} is out of range for an array of {ndim} dimensions")
    return index(axis) % ndim


def matrices(function, x):
    """The rows and columns of matrices; an error that names the function if there are not two axes."""
    if x.ndim < 2:
        raise ValueError(f"{function}: an array of shape {x.shape} has no matrices; two axes are needed")
    return x.shape[-2:]
