"""The native half of the package; ``hesper.core`` is its public face."""

from typing import Any

def __getattr__(name: str) -> Any: ...
