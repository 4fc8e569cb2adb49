"""Named outcomes of the fetch rules: one word that logs, counters and tests share.

Owns the list of refusals, a sentence for each that is safe to show, and whose fault it is.
It promises that no text made here holds a URL, a host, an address or a signature. A new
refusal is a new member here, never a free text somewhere else.
"""

from enum import StrEnum
from typing import assert_never

from shared.domain.errors import CoatcheckError


class Blame(StrEnum):
    """Who would have to change something before another try can end differently."""

    nobody = "nobody"
    target = "target"
    """The reference itself; no configuration may ever let it through."""
    configuration = "configuration"
    """Ours: a list, a cap or the resolver says no; a paid result waits for the operator."""
    provider = "provider"
    """The result host says that it does not hand this out (any more)."""
    transport = "transport"
    """The network or the host misbehaved this time; trying again may help."""


class Verdict(StrEnum):
    """What the fetch rules say. The value is the `reason` label of the blocked counter."""

    allowed = "allowed"
    not_a_string = "not_a_string"
    too_long = "too_long"
    control_char = "control_char"
    whitespace = "whitespace"
    backslash = "backslash"
    bad_unicode = "bad_unicode"
    bad_escape = "bad_escape"
    encoded_control = "encoded_control"
    fragment = "fragment"
    scheme = "scheme"
    userinfo = "userinfo"
    host_missing = "host_missing"
    host_bracket = "host_bracket"
    host_char = "host_char"
    host_syntax = "host_syntax"
    host_trailing_dot = "host_trailing_dot"
    idna = "idna"
    ip_literal = "ip_literal"
    local_name = "local_name"
    port_syntax = "port_syntax"
    port = "port"
    host_not_listed = "host_not_listed"
    address_not_public = "address_not_public"
    peer_mismatch = "peer_mismatch"
    name_unresolved = "name_unresolved"
    connect_failed = "connect_failed"
    tls_failed = "tls_failed"
    redirect = "redirect"
    gone = "gone"
    bad_status = "bad_status"
    header_flood = "header_flood"
    malformed = "malformed"
    content_encoding = "content_encoding"
    ambiguous_length = "ambiguous_length"
    length_missing = "length_missing"
    too_large = "too_large"
    body_short = "body_short"
    body_surplus = "body_surplus"
    chunk_flood = "chunk_flood"
    connection_lost = "connection_lost"
    too_slow = "too_slow"
    deadline = "deadline"

    @property
    def sentence(self) -> str:
        """One sentence about this verdict that may be shown to anybody."""
        return _SENTENCES[self]

    @property
    def blame(self) -> Blame:
        """Whose fault a refusal is; `nobody` for `allowed`."""
        return _BLAMES.get(self, Blame.target)


_SENTENCES = {
    Verdict.allowed: "The reference may be fetched.",
    Verdict.not_a_string: "The reference is not a text.",
    Verdict.too_long: "The reference is longer than 8192 characters.",
    Verdict.control_char: "The reference holds a control character.",
    Verdict.whitespace: "The reference holds white space.",
    Verdict.backslash: "The reference holds a backslash.",
    Verdict.bad_unicode: "The reference holds an invisible or unassigned character.",
    Verdict.bad_escape: "The reference holds a broken percent escape.",
    Verdict.encoded_control: "The reference holds an escaped control character.",
    Verdict.fragment: "The reference has a fragment.",
    Verdict.scheme: "Only https is fetched.",
    Verdict.userinfo: "The reference carries a user name.",
    Verdict.host_missing: "The reference names no host.",
    Verdict.host_bracket: "The brackets of the host are not those of an address.",
    Verdict.host_char: "The host holds a character that no name has.",
    Verdict.host_syntax: "The host is not a well-formed name.",
    Verdict.host_trailing_dot: "The host ends with a dot.",
    Verdict.idna: "The host is not a valid international name.",
    Verdict.ip_literal: "Addresses are never fetched, only names.",
    Verdict.local_name: "The host is a local or special-use name.",
    Verdict.port_syntax: "The port is not a number.",
    Verdict.port: "Only port 443 is fetched.",
    Verdict.host_not_listed: "The host is not on the list of this artifact.",
    Verdict.address_not_public: "The name leads to an address that is not public.",
    Verdict.peer_mismatch: "The connection did not reach the judged address.",
    Verdict.name_unresolved: "The name could not be resolved.",
    Verdict.connect_failed: "No connection could be made.",
    Verdict.tls_failed: "The host could not prove its name.",
    Verdict.redirect: "The host answered with a redirect, which is not followed.",
    Verdict.gone: "The host no longer hands out the result.",
    Verdict.bad_status: "The host answered with an error.",
    Verdict.header_flood: "The answer's headers are too large or too many.",
    Verdict.malformed: "The answer is not well-formed HTTP.",
    Verdict.content_encoding: "The answer is encoded although identity was asked for.",
    Verdict.ambiguous_length: "The answer states its length in two ways.",
    Verdict.length_missing: "The answer does not say where it ends.",
    Verdict.too_large: "The result is larger than the artifact's cap.",
    Verdict.body_short: "The connection ended before the whole result had come.",
    Verdict.body_surplus: "More bytes came than the answer had announced.",
    Verdict.chunk_flood: "The result came in too many tiny pieces.",
    Verdict.connection_lost: "The connection broke.",
    Verdict.too_slow: "The result came too slowly.",
    Verdict.deadline: "The time for the whole transfer was used up.",
}

_BLAMES = {
    Verdict.allowed: Blame.nobody,
    Verdict.gone: Blame.provider,
    **dict.fromkeys(
        (Verdict.host_not_listed, Verdict.address_not_public, Verdict.too_large),
        Blame.configuration,
    ),
    **dict.fromkeys(
        (
            Verdict.peer_mismatch,
            Verdict.name_unresolved,
            Verdict.connect_failed,
            Verdict.tls_failed,
            Verdict.redirect,
            Verdict.bad_status,
            Verdict.header_flood,
            Verdict.malformed,
            Verdict.content_encoding,
            Verdict.ambiguous_length,
            Verdict.length_missing,
            Verdict.body_short,
            Verdict.body_surplus,
            Verdict.chunk_flood,
            Verdict.connection_lost,
            Verdict.too_slow,
            Verdict.deadline,
        ),
        Blame.transport,
    ),
}


class FetchRefused(CoatcheckError):
    """A fetch that the rules stopped.

    `verdict` says why; `status` is the HTTP status, where one had come. The message is the
    verdict's sentence and nothing else.
    """

    def __init__(self, verdict: Verdict, status: int | None = None) -> None:
        super().__init__(verdict.sentence)
        self.verdict = verdict
        self.status = status

    @property
    def blame(self) -> Blame:
        """Whose fault it is."""
        return self.verdict.blame


def is_counted_as_blocked(verdict: Verdict) -> bool:
    """Whether this refusal belongs in the counter of blocked fetches."""
    match verdict.blame:
        case Blame.target | Blame.configuration:
            return True
        case Blame.nobody | Blame.provider | Blame.transport:
            return False
        case _ as never:
            assert_never(never)
