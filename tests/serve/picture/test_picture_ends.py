"""Log ends in a picture: what the newest samples say, read one file after the other."""

from hypothesis import strategies as st
from log_end_rows import Sample, gone, of_topic

from streaming.common.times import MINUTE_MS

T0 = 1_700_000_000_000
TOPICS = st.sampled_from(["orders", "orders\0", "grüße"])
IDS = st.sampled_from([None, "id-1", "id-2"])
TIMES = st.integers(0, 40).map(lambda number: T0 + number * MINUTE_MS)
SAMPLES = st.one_of(
    st.builds(Sample, TIMES, TOPICS, st.integers(0, 2), st.none() | st.integers(0, 99), IDS),
    st.builds(gone, TIMES, TOPICS),
    st.builds(of_topic, TIMES, TOPICS, st.sampled_from(["id-1", "id-2"])),
)


def in_time(rounds: list[list[Sample]]) -> list[list[Sample]]:
    """Let rounds follow each other in time, each with one word about a partition or a topic."""
    ordered = sorted((one for own in rounds for one in own), key=lambda one: one.at)
    once = list({(one.at, one.topic, one.partition): one for one in ordered}.values())
    sizes = [len(own) for own in rounds]
    bounds = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    return [once[start:stop] for start, stop in zip(bounds, bounds[1:], strict=False) if once[start:stop]]
