"""Kernels: loops over buffers that numba compiles.

Beside each kernel is simple code that says what is right, and works alone where kernels are off or numba is
not to be had; a property test holds both together. `ops.py` chooses between the two, once for a process;
`compiled.py` compiles kernels; `memory.py` is what a kernel needs to read a C library's memory, `blocks.py`,
`text.py` and `numbers.py` what it needs to read text. The kernels themselves are beside what they speed up,
in files called `*_kernels.py`, which only that code imports, and only if kernels are on.
"""
