"""Which groups have series where there are too many: those that had them before, whatever comes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from streaming.common.arrays import from_texts
from streaming.serve.memory.names import NameIndex
from streaming.serve.metrics.admission import Applicants, Seats, Withheld, admitted

MOST = 100
NOW = 5
LOGS = "logs"
"""What stands for the starts and ends of logs."""

GROUPS = st.text("abcd", min_size=1, max_size=3)
SIZES = st.dictionaries(GROUPS, st.integers(0, 40), max_size=25)


# --- one answer ------------------------------------------------------------------------------------------


def applicants(counts: list[int], **changed: Any) -> Applicants:
    """Groups that are all new and alike, but for what is changed."""
    alike = {
        "since": [NOW] * len(counts),
        "is_withheld": [False] * len(counts),
        "has_members": [False] * len(counts),
        "born": [7] * len(counts),
    }
    kinds = {"is_withheld": np.bool_, "has_members": np.bool_}
    columns = {
        name: np.array(column, kinds.get(name, np.int64)) for name, column in {**alike, **changed}.items()
    }
    return Applicants(counts=np.array(counts, np.int64), now=NOW, **columns)


def places(counts: list[int], **changed: Any) -> list[int]:
    """The numbers of the groups that are admitted."""
    return np.flatnonzero(admitted(applicants(counts, **changed), MOST)).tolist()


def test_all_have_series_where_there_is_room() -> None:
    assert places([50, 50]) == [0, 1]
    assert places([]) == []


@pytest.mark.parametrize(
    "changed",
    [
        {},  # as they come
        {"born": [1, 2]},
        {"born": [2, 1], "has_members": [True, False]},
        {"born": [2, 1], "has_members": [False, True], "since": [1, 2]},
        {"since": [1, 1], "born": [1, 2]},
    ],
)
def test_who_precedes(changed: dict[str, Any]) -> None:
    assert places([51, 50], **changed) == [0]
    assert places([50, 51], **{name: column[::-1] for name, column in changed.items()}) == (
        [1] if changed else [0]
    )


def test_one_that_there_is_no_room_for_is_passed_over() -> None:
    assert places([60, 200_000, 41, 40], since=[1, 2, 3, NOW]) == [0, 3]


def test_who_was_withheld_comes_back_once_there_is_room_to_spare() -> None:
    def are_in(count: int) -> list[int]:
        return places([50, count], since=[1, NOW], is_withheld=[False, True])

    assert are_in(41) == [0]
    assert are_in(40) == [0, 1]


def test_who_has_no_series_now_remains_as_it_was() -> None:
    assert places([0, 0, 100], is_withheld=[True, False, False], since=[NOW, NOW, 1]) == [1, 2]


@given(st.data())
def test_there_are_never_more_than_the_most(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 120), max_size=20))

    def column(of: st.SearchStrategy[Any]) -> list[Any]:
        return data.draw(st.lists(of, min_size=len(counts), max_size=len(counts)))

    is_withheld = column(st.booleans())
    since = [NOW if one else held for one, held in zip(is_withheld, column(st.integers(0, NOW)), strict=True)]
    facts = applicants(
        counts,
        since=since,
        is_withheld=is_withheld,
        has_members=column(st.booleans()),
        born=column(st.integers(0, 3)),
    )
    chosen = admitted(facts, MOST)
    total = facts.counts[chosen].sum()
    assert total <= MOST
    entry = 90 if any(is_withheld) else MOST
    limits = np.where(facts.since < NOW, MOST, entry)
    missing = ~chosen & (facts.counts > 0)
    assert (total + facts.counts[missing] > limits[missing]).all()  # nobody is withheld without need


# --- answer after answer ---------------------------------------------------------------------------------


class Listener:
    """Lets groups in, answer after answer."""

    def __init__(self) -> None:
        self._seats = Seats(MOST)

    def let_in(
        self,
        sizes: Mapping[str, int],
        *,
        members: str = "",
        gone: Mapping[str, int] | None = None,
        logs: int = 0,
    ) -> set[str]:
        """The groups that have series, of some with so many each."""
        names, _ = NameIndex.none().changed(from_texts(list(sizes)))
        lost = gone or {}
        listed = [*names.places, *lost, LOGS]
        counts = np.array([{**sizes, **lost, LOGS: logs}[name] for name in listed], np.int64)

        def ranks() -> tuple[Any, Any]:
            return np.array([name in members.split() for name in listed]), np.zeros(len(listed), np.int64)

        chosen = self._seats.given(names, list(lost), counts, ranks)
        return {name for name, is_in in zip(listed, chosen.tolist(), strict=True) if is_in} - {
            name for name in listed if name == LOGS and not logs
        }


@given(st.lists(SIZES, min_size=1, max_size=4), SIZES)
def test_a_flood_withholds_nobody_who_was_in(answers: list[dict[str, int]], flood: dict[str, int]) -> None:
    endpoint = Listener()
    for sizes in answers:
        were_in = endpoint.let_in(sizes)
    before, newcomers = answers[-1], {f"new-{name}": size for name, size in flood.items()}
    for _ in range(3):
        are_in = endpoint.let_in({**before, **newcomers}, members=" ".join(newcomers))
        assert were_in <= are_in
        were_in = are_in


@given(SIZES, SIZES)
def test_who_came_with_a_flood_goes_before_those_who_were_there(
    sizes: dict[str, int], flood: dict[str, int]
) -> None:
    assume(sizes and sum(sizes.values()) < MOST)
    endpoint, newcomers = Listener(), {f"new-{name}": size for name, size in flood.items()}
    assert endpoint.let_in(sizes) == set(sizes)
    endpoint.let_in({**sizes, **newcomers}, members=" ".join(newcomers))
    grown = {**sizes, min(sizes): sizes[min(sizes)] + MOST - sum(sizes.values())}  # there is no more room
    assert endpoint.let_in({**grown, **newcomers}, members=" ".join(newcomers)) >= set(sizes)


@given(SIZES, st.lists(st.integers(0, 9), max_size=12))
@example({"a": 90}, [0, 1, 0, 1])
@example({"a": 40, "b": 40, "c": 10}, [9, 0, 9, 0])
def test_a_group_at_the_border_does_not_come_and_go_again(sizes: dict[str, int], swings: list[int]) -> None:
    endpoint = Listener()
    swinging = "swinging"
    first = endpoint.let_in({**sizes, swinging: 10}, members=swinging)
    seen = [first, *(endpoint.let_in({**sizes, swinging: 10 + more}, members=swinging) for more in swings)]
    for group in sizes:
        since = [group in one for one in seen]
        since = since[since.index(False) :] if False in since else []
        assert since == sorted(since), "one that went came back, and went again"
    assert all(swinging in one for one in seen)


def test_who_went_comes_back_when_others_are_gone() -> None:
    endpoint = Listener()
    assert endpoint.let_in({"a": 60, "b": 60}) == {"a"}
    assert endpoint.let_in({"a": 35, "b": 60}) == {"a"}
    assert endpoint.let_in({"b": 60}) == {"b"}
    assert endpoint.let_in({"a": 40, "b": 60}) == {"a", "b"}


def test_while_nothing_can_be_told_all_remain_as_they_were() -> None:
    endpoint = Listener()
    before = {"a": 60, "b": 60, "c": 30}
    assert endpoint.let_in(before) == {"a", "c"}
    assert endpoint.let_in(dict.fromkeys(before, 0)) == {"a", "c"}
    assert endpoint.let_in({**dict.fromkeys(before, 0), "aa": 0}) == {"a", "aa", "c"}
    assert endpoint.let_in({**before, "aa": 60}) == {"a", "c"}


def test_a_group_that_is_gone_keeps_its_place_and_one_that_was_withheld_gets_none() -> None:
    endpoint = Listener()
    assert endpoint.let_in({"b": 60, "c": 30}) == {"b", "c"}
    assert endpoint.let_in({"a": 60, "b": 60, "c": 30}) == {"b", "c"}
    assert endpoint.let_in({"c": 30, "d": 9}, gone={"a": 60, "b": 60}) == {"b", "c"}
    assert endpoint.let_in({"a": 60, "b": 60, "c": 30}, gone={"d": 9}) == {"b", "c"}


def test_a_group_that_stays_gone_precedes_newcomers() -> None:
    endpoint = Listener()
    assert endpoint.let_in({"a": 60}, gone={"x": 30}) == {"a", "x"}
    assert endpoint.let_in({"a": 60, "b": 30}, members="b", gone={"x": 30}) == {"a", "x"}


def test_logs_precede_newcomers_and_follow_those_who_were_in() -> None:
    endpoint = Listener()
    assert endpoint.let_in({"a": 30}, logs=60) == {"a", LOGS}
    assert endpoint.let_in({"a": 30, "b": 20}, members="b", logs=60) == {"a", LOGS}
    assert endpoint.let_in({"a": 50, "b": 20}, members="b", logs=60) == {"a", "b"}
    assert endpoint.let_in({"a": 50, "b": 20}, logs=20) == {"a", "b", LOGS}


def test_logs_come_last_where_all_is_new() -> None:
    assert Listener().let_in({"a": 50}, logs=60) == {"a"}


def test_the_sentence_names_those_that_are_withheld() -> None:
    withheld = Withheld(groups=1_001, series=300_000, largest={"big\n": 200_000}, others=1_000)
    text = withheld.sentence(250_000)
    assert "250,000 series" in text
    assert "300,000 are withheld, all of big\\n (200,000) and 1,000 more." in text
