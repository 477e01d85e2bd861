"""Keeps cached prompt prefixes apart between cache salts (tenants), on an engine that knows no salts.

The engine reuses the longest prefix it holds, whoever sent it. A request may use the cache only when what it shares
with prompts of other salts is no longer than what it shares with prompts of its own: then it can see nothing that it
did not send itself.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class _Sent:
    salt: str
    tokens: npt.NDArray[np.int32]


def _shared(first: npt.NDArray[np.int32], second: npt.NDArray[np.int32]) -> int:
    """Length of the common prefix, in tokens."""
    length = min(len(first), len(second))
    different = np.flatnonzero(first[:length] != second[:length])
    return int(different[0]) if len(different) else length


class PrefixLedger:
    """The prompts that the engine may still hold, newest last. `limit_tokens` must cover the engine's own cache."""

    def __init__(self, limit_tokens: int) -> None:
        self._limit_tokens = limit_tokens
        self._sent: deque[_Sent] = deque()
        self._held_tokens = 0

    def admit(self, salt: str, prompt: Sequence[int]) -> bool:
        """Note the prompt and say whether it may read the prefix cache."""
        tokens = np.asarray(prompt, np.int32)
        own = other = 0
        for sent in self._sent:
            shared = _shared(sent.tokens, tokens)
            if sent.salt == salt:
                own = max(own, shared)
            else:
                other = max(other, shared)
        self._sent.append(_Sent(salt, tokens))
        self._held_tokens += len(tokens)
        while self._held_tokens > self._limit_tokens and len(self._sent) > 1:
            self._held_tokens -= len(self._sent.popleft().tokens)
        return other <= own
