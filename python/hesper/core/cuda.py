"""What programs ask about CUDA."""

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether arrays can be computed on an NVIDIA GPU.

    Examples
    --------
    >>> mx.cuda.is_available()
    False
    """
    return False
