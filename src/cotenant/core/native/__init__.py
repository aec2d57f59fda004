"""Machine code for kernels: typed Python functions over tables of numbers, compiled as one piece by LLVM.

`types` reads annotations, `emit` writes one function, `build` all of them as one object file, `load` calls it.
Why not numba: docs/design/0013-native-kernels.md.
"""
