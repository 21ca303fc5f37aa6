"""Type aliases for arrays; shapes are in comments, as `# (jobs, d)`."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Array]  # arrays by name: a state, a message, a reply, a client's memory
Numbers = int | Array  # one integer for all rows, or one each
