"""How metrics are made, registered and shown: the machinery under `shared.kit.telemetry`.

Owns the one registry of the process. Promises that a metric is shown only by the rooms that
export it, and that every label set known beforehand stands there with its zero.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
    metrics,
)
from prometheus_client.metrics import MetricWrapperBase

Values = tuple[str, ...]
M = TypeVar("M", bound=MetricWrapperBase)

ENDPOINTS: Values = ("<endpoints>",)
PROVIDERS: Values = ("<providers>",)
"""Stand-ins for values known only once the endpoint registry was read."""

REGISTRY = CollectorRegistry(auto_describe=True)

# A `_created` line beside every counter doubles the page and no query of ours reads it.
metrics.disable_created_metrics()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Declared:
    """One metric: the object, the rooms that export it, the label sets known beforehand."""

    metric: MetricWrapperBase
    rooms: Values
    known: tuple[Mapping[str, Values], ...]


DECLARED: dict[str, Declared] = {}
"""Every metric by its exported name; counters with `_total`."""

_registered: set[str] = set()


def counter(
    name: str, text: str, rooms: Values, *known: Mapping[str, Values], labels: Values = ()
) -> Counter:
    """Declares a counter. `labels` is needed only where no label set is known beforehand."""
    metric = Counter(name, text, labels or _label_names(known), registry=None)
    return _declare(name, metric, rooms, known)


def gauge(
    name: str, text: str, rooms: Values, *known: Mapping[str, Values], labels: Values = ()
) -> Gauge:
    """Declares a gauge."""
    metric = Gauge(name, text, labels or _label_names(known), registry=None)
    return _declare(name, metric, rooms, known)


def histogram(
    name: str, text: str, rooms: Values, buckets: tuple[float, ...], labels: Values = ()
) -> Histogram:
    """Declares a histogram; buckets in the unit of its name."""
    metric = Histogram(name, text, labels, buckets=buckets, registry=None)
    return _declare(name, metric, rooms, ())


def register_for(rooms: Iterable[str]) -> None:
    """Shows the metrics of these rooms from now on, and memory, CPU and files of the process."""
    if not _registered:
        ProcessCollector(registry=REGISTRY)
    running = set(rooms)
    for name, declared in DECLARED.items():
        if running & set(declared.rooms) and name not in _registered:
            REGISTRY.register(declared.metric)
            _registered.add(name)


def create_zeros(endpoints: Iterable[str] = (), providers: Iterable[str] = ()) -> None:
    """Creates every label set that is known; endpoints and providers as far as given."""
    stand_ins = {ENDPOINTS[0]: tuple(endpoints), PROVIDERS[0]: tuple(providers)}
    for declared in DECLARED.values():
        for known in declared.known:
            columns = [
                [real for value in values for real in stand_ins.get(value, (value,))]
                for values in known.values()
            ]
            for row in product(*columns):
                declared.metric.labels(**dict(zip(known, row, strict=True)))


def exposition() -> tuple[bytes, str]:
    """The text that `/metrics` answers, and its content type."""
    return generate_latest(REGISTRY), CONTENT_TYPE_PLAIN_0_0_4


def _label_names(known: tuple[Mapping[str, Values], ...]) -> Values:
    return tuple(known[0]) if known else ()


def _declare(name: str, metric: M, rooms: Values, known: tuple[Mapping[str, Values], ...]) -> M:
    DECLARED[name] = Declared(metric, rooms, known)
    return metric
