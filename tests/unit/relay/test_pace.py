"""How fast the relay looks for rows."""

from services.relay.outbox import Pace


def test_it_slows_down_without_work_and_is_quick_again_after_some() -> None:
    pace = Pace(0.005, 0.05)
    idle = [pace.after(found_work=False) for _ in range(6)]
    assert idle == [0.005, 0.01, 0.02, 0.04, 0.05, 0.05]
    assert pace.after(found_work=True) == 0.005
    assert pace.after(found_work=False) == 0.01
