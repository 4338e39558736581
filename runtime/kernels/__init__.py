"""Kernels: loops over buffers that numba compiles, where the extra `onceflow[fast]` is installed.

Every kernel is an accelerator only: the code that calls it has a twin without it, and a property test
holds that both answer the same. `compiled.py` decides whether kernels are used and compiles them;
`memory.py` is what a kernel needs to read a C library's memory, `blocks.py`, `text.py` and `numbers.py`
what it needs to read text. The kernels themselves are beside what they speed up, in files called
`*_kernels.py`, which only that code imports, and only if kernels are on.
"""
