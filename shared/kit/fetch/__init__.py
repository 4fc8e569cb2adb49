"""Safe fetching of provider results: `judge_url` says whether, `open_result` does it.

Owns everything between a URL in a provider's answer and a bounded stream of bytes. The rules
are in `parser` and `hosts`, the addresses in `addresses`, the words in `verdicts`.
"""

from shared.kit.fetch.client import FetchedResult, Network, open_result
from shared.kit.fetch.parser import FetchRules, judge_url, parse_target, private_targets
from shared.kit.fetch.verdicts import Blame, FetchRefused, Verdict, is_counted_as_blocked
from shared.kit.fetch.wire import FetchLimits

__all__ = [
    "Blame",
    "FetchLimits",
    "FetchRefused",
    "FetchRules",
    "FetchedResult",
    "Network",
    "Verdict",
    "is_counted_as_blocked",
    "judge_url",
    "open_result",
    "parse_target",
    "private_targets",
]
