"""Where numba keeps a compiled kernel: by the module's place in the package, not by where the package is installed.

numba names its folders after the path of the source file, so every checkout and every environment would compile for
itself. The folder that holds them is already named after the sources (`core/jit.py`), and numba compares the content.
Imported by numba, by name, when kernels are compiled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numba.core.caching import UserProvidedCacheLocator

_PACKAGE = Path(__file__).parents[1]


class KernelLocator(UserProvidedCacheLocator):  # type: ignore[misc,unused-ignore]
    """Kernels of this package; for other functions numba asks the next locator."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """None where the function is not ours."""
        return super().from_function(py_func, py_file) if Path(py_file).is_relative_to(_PACKAGE) else None

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Such as `engine.order`."""
        return ".".join(Path(py_file).relative_to(_PACKAGE).with_suffix("").parts)


LOCATORS = f"{__name__}.KernelLocator,UserProvidedCacheLocator"
