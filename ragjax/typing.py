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

from typing import Any, TypeAlias

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Integer, Key

__all__ = ["Array", "Bool", "Float", "Int", "Integer", "Key", "PyTree"]

Array: TypeAlias = jax.Array | np.ndarray
"""An array on a device or on the host: every pure function takes both."""

PyTree: TypeAlias = Any
"""Parameters, or anything else whose leaves are arrays."""
