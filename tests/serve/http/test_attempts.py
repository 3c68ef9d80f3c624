"""How long a client waits between attempts with a wrong token."""

from streaming.serve.http.attempts import Attempts


def test_each_failure_of_a_peer_doubles_its_wait() -> None:
    attempts, now, waits = Attempts(), 1_000.0, []
    for _ in range(9):
        attempts.failed("a", now)
        waits.append(attempts.wait_s("a", now))
        now += waits[-1]
        assert attempts.wait_s("a", now) == 0
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert attempts.wait_s("b", now) == 0


def test_failures_are_forgotten_after_a_success_and_after_ten_minutes() -> None:
    attempts = Attempts()
    for peer, now in (("a", 0), ("b", 0), ("a", 10), ("b", 10)):
        attempts.failed(peer, now)
    attempts.succeeded("a")
    attempts.succeeded("unknown")
    assert (attempts.wait_s("a", 10), attempts.wait_s("b", 10)) == (0, 1)
    attempts.failed("b", 700)
    assert attempts.wait_s("b", 700) == 0.5


def test_all_peers_together_fail_ten_times_at_once_and_then_five_times_a_second() -> None:
    attempts, checked = Attempts(), []
    for step in range(10_000):  # two seconds
        now = step / 5_000
        if not attempts.wait_s(str(step), now):
            attempts.failed(str(step), now)
            checked.append(now)
    assert len([now for now in checked if now < 0.1]) == 10
    assert 18 <= len(checked) <= 20
    assert 0 < attempts.wait_s("another", 2) <= 0.2
    assert attempts.wait_s("another", 4) == 0


def test_a_thousand_peers_are_remembered_those_that_failed_last() -> None:
    attempts = Attempts()
    for number in range(5_000):
        attempts.failed(str(number), number)
    attempts.failed("4000", 5_000)
    attempts.failed("new", 5_000)
    assert len(attempts._of_peer) == 1_000
    assert {"new", "4000", "4999", "4002"} <= set(attempts._of_peer)
    assert "4001" not in attempts._of_peer
