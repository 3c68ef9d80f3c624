"""`offsetlake serve` with 200 connections of clients of many makers, while the tables change.

Every answer names its snapshot, and is compared with it (`answers`). Memory, threads and open files of
`serve` may not grow. Meanwhile its certificate is replaced and read again, it is scraped, and pages are
looked at.
"""

import asyncio
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Final

from certificates import CertificateAuthority
from client_programs import MissingError
from processes import processor_seconds, proportional_memory, resident_memory
from signing_in import Credentials
from token_issuer import AUDIENCE, ISSUER, TokenIssuer, token_issuer

from streaming.common.times import iso
from streaming.demo.local_broker import free_ports
from streaming.settings.scram_credentials import salted
from tests.soak import report
from tests.soak.answers import HIDDEN, Ask, DifferenceError, Judge, Named, Reply
from tests.soak.askers import LIBRARIES, Asker, Library
from tests.soak.clients_seen import PANELS, ROWS, Counts, Sample, by_library, growth
from tests.soak.numbered import KEPT, OFFSETS, TOPICS, Numbered

EVERY_S: Final = 1.0
"""The pause of each client between two questions, on average."""
SHORTEST_S: Final = 60.0
"""Of a run: in shorter ones there are too few samples to tell whether something grows."""
START_S: Final = 30.0
"""In which all clients start."""
LISTED: Final = 0.005
"""The share of questions for the list of all groups."""
SAMPLE_S: Final = 5.0
SCRAPE_S: Final = 15.0
PAGE_S: Final = 60.0
RELOAD_S: Final = 300.0
OLDEST_S: Final = 180.0
"""Of how long ago an answer may be ([tables] complete_within)."""
_AHEAD: Final = 6
_PAST: Final = 3
"""The batch, after the first one, that the listener for the past answers from."""
_SECRET: Final = "a-secret"
_SETTINGS: Final = """
[serve.http]
listen = "127.0.0.1:{http}"
[[serve.kafka]]
listen = "127.0.0.1:{plain}"
[[serve.kafka]]
listen = "127.0.0.1:{past}"
as_of = "{moment}"
[[serve.kafka]]
listen = "127.0.0.1:{signed}"
security_protocol = "SASL_SSL"
certificate_file = "{certificate}"
[serve.kafka.broker]
"sasl.oauthbearer.jwks.endpoint.url" = "{keys}"
"sasl.oauthbearer.expected.audience" = "{audience}"
"sasl.oauthbearer.expected.issuer" = "{issuer}"
[[serve.principals]]
name = "all"
mechanism = "SCRAM-SHA-256"
credential = "{salted}"
groups = ["*"]
[[serve.principals]]
name = "few"
mechanism = "SCRAM-SHA-256"
credential = "{salted}"
groups = ["a-*", "new-*"]
[[serve.principals]]
name = "tokens"
mechanism = "OAUTHBEARER"
groups = ["a-*", "new-*"]
"""
_SEES_ALL: Final = ("plain", "past", "all")

Say = Callable[[str], None]


@dataclass
class Interval:
    """What happened since the last sample."""

    took: list[float] = field(default_factory=list)
    oldest_s: float = 0.0


@dataclass
class Run:
    """The processes at work, and what was seen."""

    root: Path
    judge: Judge
    bootstraps: Mapping[str, str]
    """The words of `open`, by listener and principal."""
    http: int
    serve: int
    writer: int
    say: Say
    counts: dict[str, Counts] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    since: Interval = field(default_factory=Interval)
    connections: float = float("nan")
    happened: Counter[str] = field(default_factory=Counter)

    @property
    def past(self) -> int:
        """The batch of the listener for the past."""
        return self.judge.numbered.filled + _PAST

    def read_batches(self) -> int:
        """Take note of all batches; return the number of the last one."""
        for line in (self.root / "batches.txt").read_text().splitlines()[len(self.judge.times) :]:
            batch, at = map(int, line.split())
            self.judge.note(batch, at)
        return max(self.judge.times)


def soak_clients(root: Path, out: Path, *, offsets: int, seconds: float, say: Say) -> bool:
    """Run all of it, and print what was seen; returns whether all was as it must be."""
    with ExitStack() as stack:
        numbered = Numbered(offsets // OFFSETS)
        say(f"{offsets:,} offsets in {numbered.groups:,} groups")
        writer = stack.enter_context(writing(root, numbered))
        ca = CertificateAuthority()
        credentials = Credentials.written(root, ca)
        issuer = stack.enter_context(token_issuer(credentials.server))
        issuer.clients["tokens"] = "secret"
        issuer.lifetime_s = 300
        out.mkdir(parents=True, exist_ok=True)
        stack.callback(keep_logs, root, out)
        run = stack.enter_context(serving(root, numbered, credentials, issuer, writer, say))
        asyncio.run(ask_all(run, seconds, lambda: ca.write_pem(credentials.server, "another certificate")))
        report.write_csv(out / "clients.csv", run.samples)
        report.plot(out / "clients.svg", run.samples, PANELS)
        os.kill(run.serve, signal.SIGTERM)
    return told(run, seconds, out)


def keep_logs(root: Path, out: Path) -> None:
    """Copy all that the processes have said."""
    for log in root.glob("*.log"):
        shutil.copy(log, out)


@contextmanager
def writing(root: Path, numbered: Numbered) -> Iterator[int]:
    """Fill tables and append batches while the block runs, in another process; gives its id."""
    command = [sys.executable, "-m", "tests.soak.numbered", str(root), str(numbered.groups), str(_AHEAD)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"filled\n"
            yield process.pid
            assert process.poll() is None, "the writer has ended"
        finally:
            process.kill()


@contextmanager
def serving(
    root: Path, numbered: Numbered, credentials: Credentials, issuer: TokenIssuer, writer: int, say: Say
) -> Iterator[Run]:
    """Run the command; it must end in good order at the SIGTERM that the block sends last."""
    plain, past, signed, http = free_ports(4)
    judge = Judge(numbered)
    names = ("plain", "past", "signed", "http")
    bootstraps = {"plain": f"127.0.0.1:{plain}", "past": f"127.0.0.1:{past}"}
    ca, salted_secret = credentials.ca, salted(_SECRET, "SCRAM-SHA-256", salt=bytes(16), iterations=4_096)
    for name, secret in (("all", _SECRET), ("few", _SECRET), ("tokens", issuer.url())):
        bootstraps[name] = f"127.0.0.1:{signed} {ca} {name} {secret}"
    run = Run(root, judge, bootstraps, http, 0, writer, say)
    run.read_batches()
    settings = _SETTINGS.format(
        **dict(zip(names, (plain, past, signed, http), strict=True)),
        moment=iso(judge.times[run.past] + 1),
        certificate=credentials.server,
        keys=issuer.url("/keys"),
        audience=AUDIENCE,
        issuer=ISSUER,
        salted=salted_secret,
    )
    (root / "settings.toml").write_text(settings)
    command = [sys.executable, "-m", "streaming.cli", "serve", "--table-root", str(root / "tables")]
    command += ["--config", str(root / "settings.toml")]
    environment = {**os.environ, "SSL_CERT_FILE": str(ca)}
    log = root / "serve.log"
    with log.open("wb") as stream, subprocess.Popen(command, stderr=stream, env=environment) as process:
        run.serve = process.pid
        try:
            while log.read_text().count("answering Kafka's clients on") < 3:
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield run
            assert process.wait(30) == 0, log.read_text()[-2_000:]
        finally:
            process.kill()


# --- asking ----------------------------------------------------------------------------------------------


async def ask_all(run: Run, seconds: float, replace_certificate: Callable[[], object]) -> None:
    """Let all clients ask for so long, and do to `serve` what happens to it in its life."""
    askers = await started(run)
    try:
        for name in askers:
            run.counts[name] = Counts()
        await until_loaded(run, askers)
        run.say("all listeners answer")
        until = time.monotonic() + seconds
        slots = [
            slot(run, name, asker, listener, number, until, seconds)
            for name, asker in askers.items()
            for listener, count in LIBRARIES[name].clients.items()
            for number in range(count)
        ]
        run.say(f"{len(slots)} clients")
        async with asyncio.TaskGroup() as tasks:
            for one in slots:
                tasks.create_task(one)
            for every, act in (
                (SAMPLE_S, sampled(run, askers)),
                (SCRAPE_S, lambda: asyncio.to_thread(scrape, run)),
                (min(PAGE_S, seconds / 4), lambda: asyncio.to_thread(look, run)),
                (min(RELOAD_S, seconds / 4), lambda: asyncio.to_thread(reload, run, replace_certificate)),
            ):
                tasks.create_task(again(run, every, until, act))
    finally:
        for asker in askers.values():
            await asker.stop()


async def started(run: Run) -> dict[str, Asker]:
    """Start the askers of all libraries that can be had, and say which cannot."""
    found = {}
    for name, library in LIBRARIES.items():
        try:
            program = library.program()
        except MissingError as missing:
            run.say(f"without {name}: {missing}")
            continue
        found[name] = Asker(program, run.root / f"{name}.log")
        await found[name].start()
    return found


async def until_loaded(run: Run, askers: Mapping[str, Asker]) -> None:
    """Wait until every listener answers about groups; until then clients may get errors."""
    for name, asker in askers.items():
        for listener in LIBRARIES[name].clients:
            deadline = time.monotonic() + 60
            for number in itertools.count():
                client = f"first-{listener}-{number}"
                words = await asker.ask(client, f"open {run.bootstraps[listener]}")
                if words[0] != "error":
                    words = await asker.ask(client, f"offsets {run.judge.numbered.name(0)}")
                asker.tell(client, "close")
                if words[0] != "error":
                    break
                assert time.monotonic() < deadline, f"{name} at {listener}: {' '.join(words)}"
                await asyncio.sleep(1)


async def slot(
    run: Run, name: str, asker: Asker, listener: str, number: int, until: float, seconds: float
) -> None:
    """Ask with one client at a time; it is replaced after an error, or, if it is one that leaves, always."""
    chance = random.Random(f"{name} {listener} {number}")
    counts, named, client, opened = run.counts[name], Named(), 0, ""
    await asyncio.sleep(chance.uniform(0, min(START_S, (until - time.monotonic()) / 4)))
    while time.monotonic() < until:
        began = time.monotonic()
        ask = Ask("open")
        try:
            if not opened:
                client += 1
                opened = f"{listener}-{number}-{client}"
                reply = read(await asker.ask(opened, f"open {run.bootstraps[listener]}"))
                named = checked(run, ask, reply, named, listener)
            began = time.monotonic()
            ask = question(run, LIBRARIES[name], listener, chance)
            reply = read(await asker.ask(opened, ask.words))
            took = time.monotonic() - began
            named = checked(run, ask, reply, named, listener)
            counts.answers[ask.kind] += 1
            counts.by_quarter[int(4 * (1 - (until - began) / seconds))] += 1
            counts.took.append(took)
            run.since.took.append(took)
        except DifferenceError as difference:
            counts.differences.append(f"{listener} {opened}: {difference}")
            run.say(f"DIFFERENT {name} {counts.differences[-1]}"[:400])
        except (ClientError, TimeoutError) as error:
            text = f"{listener}, {ask.kind}: {error or 'no answer'}"
            counts.errors[text] += 1
            run.say(f"ERROR {name} {text}"[:400])
            asker.tell(opened, "close")
            opened = ""
        if number < LIBRARIES[name].leaving and opened:
            asker.tell(opened, "close")
            opened = ""
        await asyncio.sleep(chance.uniform(0, 2 * EVERY_S))


class ClientError(Exception):
    """A client says that it got an error."""


def read(words: Sequence[str]) -> Reply:
    """Return what a line says; raises `ClientError`."""
    if len(words) < 2 or words[0] == "error":
        raise ClientError(" ".join(words[1:]))
    return Reply.read(words)


def checked(run: Run, ask: Ask, reply: Reply, named: Named, listener: str) -> Named:
    """Return what a reply names; raises `DifferenceError`."""
    last, sees_all = Named(*2 * [run.read_batches()]), listener in _SEES_ALL
    if listener == "past":
        last = named = Named(run.past, run.past)
    if ask.kind == "open":
        now = run.judge.named(reply, named)
    else:
        now = run.judge.check(ask, reply, named, sees_all=sees_all)
    if now.batch > last.batch or now.sample > last.sample:
        raise DifferenceError(f"named {now}, expected at most {last}")
    if listener != "past":
        run.since.oldest_s = max(run.since.oldest_s, run.judge.age_s(now.batch, time.time()))
    return now


def question(run: Run, library: Library, listener: str, chance: random.Random) -> Ask:
    """Draw what is asked next: about groups that have just committed, or are about to."""
    drawn = chance.random()
    if drawn < LISTED:
        return Ask("groups")
    if drawn < 0.1 and library.asks_ends:
        return Ask("ends", [chance.choice(list(TOPICS))])
    numbered, last = run.judge.numbered, max(run.judge.times) if listener != "past" else run.past
    if drawn < 0.12 and listener == "few":
        return Ask("offsets", [f"{HIDDEN}{numbered.cycle:05}"])
    names = dict[str, None]()
    for batch in range(last - 1, last + 3):
        row = 2 * chance.randrange(numbered.groups // numbered.cycle // 2)  # those are not hidden
        names[numbered.name(batch % numbered.cycle + row * numbered.cycle)] = None
    if drawn < 0.3:
        return Ask("members", list(names))
    if not library.fetches_many:
        return Ask("offsets", [chance.choice(list(names))])
    names |= dict.fromkeys([f"new-{last + chance.randrange(2)}", f"new-{last - KEPT + chance.randrange(2)}"])
    return Ask("offsets", list(names))


# --- beside it -------------------------------------------------------------------------------------------


async def again(run: Run, every: float, until: float, act: Callable[[], Awaitable[object]]) -> None:
    """Act at a steady pace; what `serve` does not answer by HTTP is counted."""
    due = time.monotonic() + every
    while due < until:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        try:
            await act()
        except (OSError, HTTPException) as error:
            run.happened[f"not answered: {error}"] += 1
            run.say(f"HTTP: {error}")
        due = max(due + every, time.monotonic())


def scrape(run: Run) -> None:
    """Read all metrics, and note the open connections."""
    text = fetched(run, "/metrics")
    found = re.search(r"^offsetlake_kafka_connections(?:\{.*\})? (\S+)$", text, re.MULTILINE)
    run.connections = float(found[1]) if found else float("nan")
    run.happened["scrapes"] += 1


def look(run: Run) -> None:
    """Look at two pages."""
    group = run.judge.numbered.name(max(run.judge.times) % run.judge.numbered.cycle)
    for path in ("/groups", f"/group?group={group}"):
        fetched(run, path)
        run.happened["pages"] += 1


def fetched(run: Run, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{run.http}{path}", timeout=60) as answer:
        return str(answer.read().decode())


def reload(run: Run, replace_certificate: Callable[[], object]) -> None:
    """Replace the certificate, and have it read."""
    replace_certificate()
    os.kill(run.serve, signal.SIGHUP)
    run.happened["reloads"] += 1


def sampled(run: Run, askers: Mapping[str, Asker]) -> Callable[[], Awaitable[None]]:
    """Return what takes the next sample."""
    began = time.monotonic()
    others = [run.writer, os.getpid(), *(asker.process.pid for asker in askers.values())]
    before = (began, spent([run.serve]), spent(others), Counter[str]())

    async def take() -> None:
        nonlocal before
        now, parts = time.monotonic(), {run.serve: "serve"}
        after = (now, spent([run.serve]), spent(others), totals(run))
        wall, counted = after[0] - before[0], after[3]
        counted = Counter({name: counted[name] - before[3][name] for name in counted})
        took = sorted(run.since.took) or [float("nan")]
        folder = Path(f"/proc/{run.serve}")
        run.samples.append(
            Sample(
                seconds=now - began,
                memory_bytes=proportional_memory(parts)["serve"],
                resident_bytes=resident_memory(parts)["serve"],
                threads=len(list((folder / "task").iterdir())),
                files=len(list((folder / "fd").iterdir())),
                processor=(after[1] - before[1]) / wall,
                others_processor=(after[2] - before[2]) / wall,
                connections=run.connections,
                answers_a_second=counted["answers"] / wall,
                errors=counted["errors"],
                differences=counted["differences"],
                median_s=took[len(took) // 2],
                longest_s=took[-1],
                oldest_s=run.since.oldest_s,
            )
        )
        before, run.since = after, Interval()

    return take


def spent(pids: Sequence[int]) -> float:
    return sum(processor_seconds(dict.fromkeys(pids, "it")).values())


def totals(run: Run) -> Counter[str]:
    found = Counter[str]()
    for one in run.counts.values():
        found["answers"] += one.answers.total()
        found["errors"] += one.errors.total()
        found["differences"] += len(one.differences)
    return found


# --- telling ---------------------------------------------------------------------------------------------


def told(run: Run, seconds: float, out: Path) -> bool:
    """Print all that was seen, and each verdict with its rule; return whether all are good."""
    log = (run.root / "serve.log").read_text()
    run.say(by_library(run.counts))
    run.say(report.table(run.samples, ROWS))
    run.say(f"samples and plot: {out}/clients.csv, clients.svg")
    reloads = log.count("certificates and principals were read again")
    read = run.happened["reloads"]
    oldest = max(at.oldest_s for at in run.samples)
    verdicts = [
        (
            f"{totals(run)['differences']} answers that differ from their snapshots; none may",
            not totals(run)["differences"],
        ),
        (f"{totals(run)['errors']} errors of clients; none may be", not totals(run)["errors"]),
        (f"the oldest answer was {oldest:.1f} s old; at most {OLDEST_S:g} s", oldest <= OLDEST_S),
        (f"{reloads} of {read} reloads; all must be", reloads == read > 0),
        *growth(run.samples),
    ]
    verdicts += [(f"no answer to {name}", False) for name, one in run.counts.items() if not one.took]
    for sentence, is_good in verdicts:
        run.say(f"{'good' if is_good else 'BAD'}: {sentence}")
    run.say(f"in {seconds:g} s: {dict(run.happened)}, {len(run.judge.times)} batches; serve said:")
    for line, times in Counter(re.sub(r"^\S+Z ", "", line) for line in log.splitlines()).most_common(20):
        run.say(f"  {times} x {line}"[:300])
    return all(is_good for _, is_good in verdicts)
