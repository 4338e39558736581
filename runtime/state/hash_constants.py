"""Constants of XXH3 (64 bit), as the xxHash library 0.8 has them."""

from __future__ import annotations

import numpy as np

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8"
    "fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb17"
    "0ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
SECRET_WORDS = np.array(
    [int.from_bytes(_SECRET[i : i + 8], "little") for i in range(len(_SECRET) - 7)], np.uint64
)
"""The secret's 8 bytes from each place on."""

MIX_AVALANCHE = np.uint64(0x165667919E3779F9)
MIX_4_TO_8 = np.uint64(0x9FB21C651E98DF25)
"""The multiplier for texts of 4 to 8 bytes."""
