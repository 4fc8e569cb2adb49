"""Which network addresses count as public: one explicit table, nothing inherited.

`ipaddress.is_global` differs between Python releases and calls many hostile ranges global, so
it is not asked. IPv4 is public outside the table; IPv6 is public inside 2000::/3 and outside
the table. Forms that carry an IPv4 address inside (mapped, translated, 6to4, Teredo, NAT64)
are refused whatever they carry; NAT64 alone may be switched on and is then judged by the
address inside. Must never raise: what cannot be read is not public.
"""

from enum import StrEnum
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network


class AddressKind(StrEnum):
    """What an address is for. Only `public` may be connected to."""

    public = "public"
    unreadable = "unreadable"
    this_network = "this_network"
    private = "private"
    shared = "shared"
    loopback = "loopback"
    link_local = "link_local"
    metadata = "metadata"
    ietf = "ietf"
    documentation = "documentation"
    as112 = "as112"
    amt = "amt"
    relay_6to4 = "relay_6to4"
    benchmark = "benchmark"
    multicast = "multicast"
    reserved = "reserved"
    v4_mapped = "v4_mapped"
    v4_translated = "v4_translated"
    v4_compatible = "v4_compatible"
    nat64 = "nat64"
    teredo = "teredo"
    tunnel_6to4 = "tunnel_6to4"
    orchid = "orchid"
    dummy = "dummy"
    srv6 = "srv6"
    ula = "ula"
    site_local = "site_local"
    unallocated = "unallocated"


_V4_TABLE = tuple(
    (IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", AddressKind.this_network),
        ("10.0.0.0/8", AddressKind.private),
        ("100.64.0.0/10", AddressKind.shared),
        ("127.0.0.0/8", AddressKind.loopback),
        ("168.63.129.16/32", AddressKind.metadata),
        ("169.254.0.0/16", AddressKind.link_local),
        ("172.16.0.0/12", AddressKind.private),
        ("192.0.0.0/24", AddressKind.ietf),
        ("192.0.2.0/24", AddressKind.documentation),
        ("192.31.196.0/24", AddressKind.as112),
        ("192.52.193.0/24", AddressKind.amt),
        ("192.88.99.0/24", AddressKind.relay_6to4),
        ("192.168.0.0/16", AddressKind.private),
        ("192.175.48.0/24", AddressKind.as112),
        ("198.18.0.0/15", AddressKind.benchmark),
        ("198.51.100.0/24", AddressKind.documentation),
        ("203.0.113.0/24", AddressKind.documentation),
        ("224.0.0.0/4", AddressKind.multicast),
        ("240.0.0.0/4", AddressKind.reserved),
    )
)

_NAT64 = IPv6Network("64:ff9b::/96")
_V6_PUBLIC = IPv6Network("2000::/3")
_V6_TABLE = tuple(
    (IPv6Network(network), kind)
    for network, kind in (
        ("::1/128", AddressKind.loopback),
        ("::ffff:0:0/96", AddressKind.v4_mapped),
        ("::ffff:0:0:0/96", AddressKind.v4_translated),
        ("::/96", AddressKind.v4_compatible),
        ("64:ff9b::/96", AddressKind.nat64),
        ("64:ff9b:1::/48", AddressKind.nat64),
        ("100::/64", AddressKind.reserved),
        ("100:0:0:1::/64", AddressKind.dummy),
        ("2001::/32", AddressKind.teredo),
        ("2001:2::/48", AddressKind.benchmark),
        ("2001:3::/32", AddressKind.amt),
        ("2001:4:112::/48", AddressKind.as112),
        ("2001:10::/28", AddressKind.orchid),
        ("2001:20::/28", AddressKind.orchid),
        ("2001::/23", AddressKind.ietf),
        ("2001:db8::/32", AddressKind.documentation),
        ("2002::/16", AddressKind.tunnel_6to4),
        ("2620:4f:8000::/48", AddressKind.as112),
        ("3fff::/20", AddressKind.documentation),
        ("5f00::/16", AddressKind.srv6),
        ("fc00::/7", AddressKind.ula),
        ("fe80::/10", AddressKind.link_local),
        ("fec0::/10", AddressKind.site_local),
        ("ff00::/8", AddressKind.multicast),
    )
)


def judge_address(text: str, *, allow_nat64: bool = False) -> AddressKind:
    """What the address in `text` is for. Never raises; a scope id makes it unreadable."""
    if ":" not in text:
        try:
            return _judge_v4(IPv4Address(text))
        except AddressValueError:
            return AddressKind.unreadable
    if "%" in text:
        return AddressKind.unreadable
    try:
        address = IPv6Address(text)
    except AddressValueError:
        return AddressKind.unreadable
    if allow_nat64 and address in _NAT64:
        return _judge_v4(IPv4Address(int(address) & 0xFFFF_FFFF))
    return _judge_v6(address)


def _judge_v4(address: IPv4Address) -> AddressKind:
    for network, kind in _V4_TABLE:
        if address in network:
            return kind
    return AddressKind.public


def _judge_v6(address: IPv6Address) -> AddressKind:
    for network, kind in _V6_TABLE:
        if address in network:
            return kind
    return AddressKind.public if address in _V6_PUBLIC else AddressKind.unallocated
