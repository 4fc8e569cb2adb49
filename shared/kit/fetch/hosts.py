"""Host names as the fetch rules read them: strict IDNA 2008, public names only.

Owns what a host may look like and how it is compared with an artifact's list. It promises a
lower-case ASCII name of at least two labels or a verdict. Addresses in any spelling, local
names and names that different readers turn into different hosts are refused.
"""

import re
from dataclasses import dataclass

import idna

from shared.kit.fetch.verdicts import Verdict

HOST_CHARS_MAX = 253
LABEL_CHARS_MAX = 63

_ASCII_HOST = re.compile(r"[A-Za-z0-9._-]*")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Readers map these to a dot, to "ss", to another sigma or to nothing; names with them are
# different hosts for different readers.
_OTHER_DOTS = frozenset("\u3002\uff0e\uff61")
_DEVIATIONS = frozenset("\u00df\u1e9e\u03c2\u200c\u200d")

LOCAL_SUFFIXES = (
    "alt",
    "arpa",
    "consul",
    "corp",
    "docker",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "mail",
    "onion",
    "private",
    "svc",
    "test",
    "workgroup",
)
"""Last labels that no public host has, or that lead into a private network."""


@dataclass(frozen=True)
class Host:
    """A public-looking name in lower-case ASCII."""

    name: str

    def is_listed(self, patterns: tuple[str, ...]) -> bool:
        """Whether an exact name, a "*.suffix" (never the suffix itself) or "*" fits."""
        return any(self._fits(pattern.lower()) for pattern in patterns)

    def _fits(self, pattern: str) -> bool:
        if pattern == "*":
            return True
        if pattern.startswith("*."):
            return self.name.endswith(pattern[1:]) and len(self.name) > len(pattern) - 1
        return self.name == pattern


def read_host(text: str) -> Host | Verdict:
    """The host that `text` names, or why it is refused."""
    if not text.isascii():
        encoded = _encode(text)
        if isinstance(encoded, Verdict):
            return encoded
        text = encoded
    if not _ASCII_HOST.fullmatch(text):
        return Verdict.host_char
    name = text.lower()
    labels = name.split(".")
    if labels[-1] == "" and "" not in labels[:-1]:
        return Verdict.host_trailing_dot
    refusal = _judge_labels(labels)
    if refusal is not None:
        return refusal
    if len(name) > HOST_CHARS_MAX:
        return Verdict.host_syntax
    if _NUMERIC_LABEL.fullmatch(labels[-1]):
        return Verdict.ip_literal
    if len(labels) < 2 or labels[-1] in LOCAL_SUFFIXES:
        return Verdict.local_name
    return Host(name)


def _encode(text: str) -> str | Verdict:
    if not _OTHER_DOTS.isdisjoint(text) or not _DEVIATIONS.isdisjoint(text):
        return Verdict.idna
    labels = []
    for label in text.split("."):
        try:
            labels.append(label if label.isascii() else idna.encode(label).decode("ascii"))
        except UnicodeError:  # idna.IDNAError is one, too
            return Verdict.idna
    return ".".join(labels)


def _judge_labels(labels: list[str]) -> Verdict | None:
    for label in labels:
        if not label or len(label) > LABEL_CHARS_MAX:
            return Verdict.host_syntax
        if label[0] == "-" or label[-1] == "-":
            return Verdict.host_syntax
        if label.startswith("xn--") and not _is_true_a_label(label):
            return Verdict.idna
    return None


def _is_true_a_label(label: str) -> bool:
    try:
        return idna.encode(idna.decode(label)).decode("ascii") == label
    except UnicodeError:
        return False
