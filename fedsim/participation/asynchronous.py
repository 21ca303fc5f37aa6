"""The asynchronous policy: clients work continuously, and the server aggregates a buffer of replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from fedsim.checks import check_cohort, check_counts
from fedsim.errors import InvalidInput
from fedsim.participation.synchronous import close_by, columns_of, select_some
from fedsim.protocols import PolicyColumns, View
from fedsim.renamed import refuse_old_keywords
from fedsim.rules.closing import AT_REPLIES, Closing
from fedsim.text import short_repr


@refuse_old_keywords("fs.participation.buffered")
def buffered(k: int, *, of: int | None = None, discount: Callable[[int], float] | None = None) -> Buffered:
    """Let `of` clients (None: all) work continuously, and aggregate every k replies.

    theta += sum_c w_c s(staleness) (beta_c - theta_v), where v is the version that client c started from and
    s = `discount` (None: 1). The samplers have no known stationary law under this policy.
    """
    return Buffered(k, of=of, discount=discount)


@dataclass(frozen=True)
class Buffered:
    """A buffer of k replies from clients that work continuously."""

    k: int
    _: KW_ONLY
    of: int | None = None
    discount: Callable[[int], float] | None = None
    asynchronous, at_least = True, None

    select = select_some
    size = property(lambda self: self.of)
    replies = property(lambda self: self.k)

    def __post_init__(self) -> None:
        check_counts("participation.buffered", self, "k", "of")
        if not (self.discount is None or callable(self.discount)) or isinstance(self.discount, type):
            given = f"participation.buffered(discount={short_repr(self.discount)})"
            raise InvalidInput(f"{given}: give a function of the staleness, or None")

    @property
    def _closing(self) -> Closing:
        return Closing(AT_REPLIES, float(self.k))

    def close(self, view: View) -> float:
        return close_by(self._closing, view)

    def check(self, clients: int) -> None:
        check_cohort("participation.buffered", self.of, None, clients)

    def to_columns(self) -> PolicyColumns:
        return columns_of(self, self._closing)
