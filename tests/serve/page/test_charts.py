"""Charts of pages, and the rate of commits: numbers as coordinates."""

import re

from streaming.serve.page.charts import Band, Line, Mark, bars, lines
from streaming.serve.page.rate import CommitRate


def test_lines_rise_with_their_values_and_have_gaps_where_they_are_unknown() -> None:
    chart = lines(
        [0, 1_000, 2_000, 3_000, 4_000],
        [Line(label="lag", kind="lag", values=[0, 10, None, 5, None])],
        unit="records",
        bands=[Band(label="no members", kind="none", start=1_000, end=2_000)],
        marks=[Mark(label="rewind", kind="rewind", at=3_000), Mark(label="rewind", kind="rewind", at=9_000)],
    )
    assert chart is not None
    assert chart.paths == [("lag", "M0.0 200.0L250.0 0.0M750.0 100.0")]
    assert [(shape.x, shape.width) for shape in chart.shapes] == [(250.0, 250.0)]
    assert chart.marks == [("rewind", 750.0, "rewind")]
    assert chart.y_labels == ["10", "5", "0"]
    assert re.search("at the end: lag unknown", chart.summary)


def test_bars_are_as_high_as_their_counts() -> None:
    chart = bars([0, 1_000, 2_000], [4, 0, 2], step=1_000, unit="commits")
    assert [(shape.y, shape.height) for shape in chart.shapes] == [(0.0, 200.0), (100.0, 100.0)]
    assert chart.summary.startswith("6 commits from ")


def test_commits_a_minute_are_counted_over_the_last_minute() -> None:
    rate = CommitRate()
    assert rate.per_minute(0, 1_000) is None
    assert rate.per_minute(3_999, 1_010) is None
    assert rate.per_minute(6_000, 1_020) == 200
    assert rate.per_minute(60_000, 1_100) == 100
    assert rate.per_minute(66_000, 1_120) == 100  # since 6 s
    assert rate.per_minute(1_000, 2_000) is None  # the clock went back


def test_requests_that_overtake_each_other_do_not_count_as_a_clock_that_went_back() -> None:
    rate = CommitRate()
    for now in (0, 30_002):
        rate.per_minute(now, now)
    assert rate.per_minute(30_001, 30_002) == rate.per_minute(30_002, 30_002) == 60_000


def test_no_line_is_drawn_if_no_time_passes() -> None:
    own = [Line(label="lag", kind="lag", values=[0, 10])]
    assert lines([5, 5], own, unit="records") is None
    assert lines([5, 5], own, unit="records", until=6) is not None
