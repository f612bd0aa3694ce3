"""Objects that convert to arrays."""

__all__ = ["ArrayLike"]


class ArrayLike:
    """An object that converts to an array through its ``__mlx_array__``.

    Parameters
    ----------
    arg : object

    Examples
    --------
    >>> class Half:
    ...     def __mlx_array__(self):
    ...         return mx.array(0.5)
    >>> mx.array(mx.ArrayLike(Half()))
    array(0.5, dtype=float32)
    """

    def __init__(self, arg: object, /) -> None:
        if hasattr(arg, "__mlx_array__"):
            self.__mlx_array__ = arg.__mlx_array__
