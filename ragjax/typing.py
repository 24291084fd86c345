"""The letters of every shape, and the array aliases that carry them.

========  ====================  ========  ===============================
letter    axis                  letter    axis
========  ====================  ========  ===============================
B         batch (examples)      D         model width
T         query length          F         feed-forward width
S         key length (cache)    V         vocabulary
N         query heads           L         layers
K         key/value heads       E         experts
G         heads per KV head     C         candidates
H         head width            R         rows, B * C (example-major)
========  ====================  ========  ===============================

In subspace scoring R is the rank of the principal subspace; it never meets the rows of a decode in one function.
"""

from typing import TypeAlias

import jax
from jaxtyping import Array, Bool, Float, Int, Key

__all__ = ["Array", "Bool", "Float", "Int", "Key", "PyTree"]

PyTree: TypeAlias = "jax.Array | dict | list | tuple"
