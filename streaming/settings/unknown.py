"""Messages about unknown names in a settings file, with suggestions."""

from collections.abc import Iterable, Mapping
from itertools import accumulate

from streaming.model.suggestions import did_you_mean, nearest
from streaming.settings.kinds import Entries, Kind


def unknown(name: str, kinds: Mapping[str, Kind]) -> tuple[str, str]:
    """Return the unknown part of a name, and a sentence about it.

    `name` is dotted; if it ends with a dot it is the name of a section. `kinds` has the known settings.
    """
    sections = sections_of(kinds)
    if name in sections:
        return name, f"{name!r} is a section, found a value. Write [{name}], and its settings below."
    *parents, _ = accumulate(name.split("."), lambda section, key: f"{section}.{key}")
    for parent in parents:
        if parent in kinds:
            return parent, _not_a_section(parent, kinds[parent])
        if parent not in sections:
            return parent, f"unknown section [{parent}].{_meant_section(parent, sections)}"
    return name, f"unknown setting {name!r}.{_meant_setting(name, kinds)}"


def sections_of(kinds: Iterable[str]) -> frozenset[str]:
    return frozenset(
        section
        for name in kinds
        for section in accumulate(name.split(".")[:-1], lambda section, key: f"{section}.{key}")
    )


def _not_a_section(name: str, kind: Kind) -> str:
    hint = f" Write [[{name}]]." if isinstance(kind, Entries) else ""
    return f"setting {name!r} expects {kind.expectation({})}, found a table.{hint}"


def _meant_section(name: str, sections: Iterable[str]) -> str:
    near = [f"[{section}]" for section in nearest(name, sections)]
    return did_you_mean(near) or f" Sections: {', '.join(sorted(sections))}."


def _meant_setting(name: str, kinds: Iterable[str]) -> str:
    """Suggest similar names in the section and the same name in others, or list the section's settings.

    `driver_memory` is the same name as `memory`: sections have such words.
    """
    section, _, key = name.rpartition(".")
    own = [known.rpartition(".")[2] for known in kinds if known.rpartition(".")[0] == section]
    near = [f"{section}.{one}" for one in nearest(key, own)]
    elsewhere = [known for known in kinds if f"_{key}".endswith(f"_{known.rpartition('.')[2]}")]
    if near or elsewhere:
        return did_you_mean([*near, *elsewhere][:3])
    if own:
        return f" Settings of [{section}]: {', '.join(own)}."
    return f" Expected it in one of the sections {', '.join(sorted(sections_of(kinds)))}."
