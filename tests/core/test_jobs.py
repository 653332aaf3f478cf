"""The job engine: turns and idempotence with slots that are threads, and everything that kills with real processes."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offrl_core as orl
from offrl_core.algorithms import ALGORITHMS
from offrl_core.dataset import Dataset
from offrl_core.errors import InvalidConfig, JobCancelled, JobFailed, NotPossible, TooManyJobs, UnknownName
from offrl_core.history import History
from offrl_core.interfaces import TrainedModel
from offrl_core.jobs import Engine, Job, Limits, slots, worker
from offrl_core.jobs.line import Line
from offrl_core.jobs.states import decode_state, encode_state
from offrl_core.jobs.worker import SliceStart, Work, run_slice
from offrl_core.params import make_config
from offrl_core.temporary import remove_left_behind
from offrl_core.training import named_model

from .helpers import episode, few_examples, make_log
from .odd_learners import ODD_LEARNERS, children
from .test_runs import same_run

ROOT = Path(__file__).resolve().parents[2]
LONG = 120.0  # for what must come: a machine may be busy, a test that fails may take its time
needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc")


@pytest.fixture(autouse=True)
def odd_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, spec in ODD_LEARNERS.items():
        monkeypatch.setitem(ALGORITHMS, name, spec)


@pytest.fixture(scope="module")
def small() -> Dataset:
    return orl.frame(orl.collect("calculator", "logger_without_mul", n_episodes=60, seed=3))


class ThreadSlot:
    """A slot in this process, which says what ran in it (several seeds at once, where they share a slice) and how often it
    was reset."""

    def __init__(self, ran: list[tuple[Work, ...]]) -> None:
        self.ran, self.pool = ran, ThreadPoolExecutor(1)
        self.n_resets = 0
        self.deaths: dict[int, int] = {}  # seed -> how many of its slices end in death, the first slice spared

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if function is not run_slice:
            return self.pool.submit(function, *arguments)
        works, starts, _ = arguments
        self.ran.append(works)
        dies = any(start.n_seen and self.deaths.get(work.seed, 0) for work, start in zip(works, starts, strict=True))
        for work in works if dies else ():
            self.deaths[work.seed] = max(0, self.deaths.get(work.seed, 0) - 1)
        return self.pool.submit(self.die if dies else function, *arguments)

    def die(self, *arguments: Any) -> None:
        run_slice(*arguments)
        worker._bench.clear()
        raise BrokenProcessPool("the worker was killed")

    def reset(self) -> None:
        self.n_resets += 1
        self.pool.shutdown(wait=True)
        worker._bench.clear()
        self.pool = ThreadPoolExecutor(1)


class Bench:
    """An engine with one thread for a slot, and the order in which it ran slices."""

    def __init__(self, runs: Path, **limits: Any) -> None:
        self.ran: list[tuple[Work, ...]] = []
        quick = {"slice_seconds": 0.02, "first_slice_seconds": 0.01, **limits}
        self.slot = ThreadSlot(self.ran)
        self.engine = Engine(slots=lambda n: [self.slot], runs=runs, limits=Limits(**quick))

    @property
    def seeds(self) -> list[int]:
        """Of the slices, where no two seeds shared one."""
        return [work.seed for (work,) in self.ran]

    @property
    def batches(self) -> list[tuple[int, ...]]:
        """Seeds that shared each slice."""
        return [tuple(work.seed for work in works) for works in self.ran]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.engine.close()


def until(condition: Callable[[], Any]) -> None:
    ends = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.005)


def walk(engine: Engine, dataset: Dataset, n_steps: int = 40, pause: float = 0.005, **more: Any) -> Job:
    return engine.submit(dataset, "walk", n_steps=n_steps, pause=pause, **more)


# -- slices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["walk", "walk_whole", "fqi_sampled", "fqi", "bc", "decision_transformer"])
def test_a_job_gives_what_training_gives_bit_for_bit(name: str, bench: Bench, small: Dataset) -> None:
    few = {"walk": {"n_steps": 60, "pause": 0.001}, "fqi_sampled": {"n_sweeps": 30}}
    parameters = {**few, "decision_transformer": {"n_steps": 20, "batch_size": 8}}.get(name, {})
    job = bench.engine.submit(small, name, seed=4, **parameters)
    assert same_run(job.result(LONG), orl.train(small, name, seed=4, **parameters))
    assert job.state == "succeeded"
    assert orl.load_run(job.run_id, bench.engine._runs).algorithm == name


@pytest.mark.parametrize("name", [name for name, spec in ALGORITHMS.items() if spec.resumable] + ["walk"])
def test_a_resumable_learner_goes_on_from_any_sign_of_life(name: str, small: Dataset, monkeypatch: Any) -> None:
    """Through a state at every single one, as if each slice ran in a process of its own."""
    monkeypatch.setattr("offrl_core.algorithms.fqi_sampled.ROWS_BETWEEN_SIGNS_OF_LIFE", 50)
    few = {"fqi_sampled": {"n_sweeps": 4}, "decision_transformer": {"n_steps": 6, "batch_size": 8}}
    parameters = few.get(name, {"n_steps": 100} if name.endswith("_neural") else {})
    whole = orl.train(small, name, seed=2, **parameters)
    assert len(whole.history) > 4
    sliced = trained_in_slices(name, small, 2, parameters)
    assert same_run(sliced, whole)


def trained_in_slices(name: str, dataset: Dataset, seed: int, parameters: dict[str, Any]) -> TrainedModel:
    spec = ALGORITHMS[name]
    config, history, state = make_config(spec.config_class, parameters, name), History(), None
    while True:
        training = spec.train(dataset, config, seed=seed, **({"resume_from": decode_state(state)} if state else {}))
        try:
            progress = next(training)
        except StopIteration as finished:
            return named_model(finished.value, name, config, seed, history)
        state = encode_state(progress.state)
        history.append(progress)
        training.close()
        assert history.n_seen < 10_000, "it doesn't get on"


def test_a_slice_that_lost_its_learner_says_so(small: Dataset, tmp_path: Path) -> None:
    work = Work(key="k", algorithm=ODD_LEARNERS["walk_whole"], config=None, seed=0, dataset=tmp_path)
    (end,) = run_slice((work,), (SliceStart(n_seen=3),), 0.1)
    assert end.lost


def test_events_are_numbered_and_reach_the_caller_while_it_runs(bench: Bench, small: Dataset) -> None:
    job = walk(bench.engine, small, n_steps=30, pause=0.01)
    seen: list[int] = []
    while not job.wait(0.01):
        seen += [event.number for event in job.events(seen[-1] if seen else 0)]
    assert seen
    seen += [event.number for event in job.events(seen[-1])]
    assert seen == list(range(1, 31))
    latest = job.progress()
    assert latest is not None
    assert (latest.step, latest.state) == (30, None)
    assert "step 30 of 30" in repr(job)


# -- the same run is computed once -----------------------------------------------------------------------------------


def test_a_running_job_is_joined_and_a_finished_one_is_there(bench: Bench, small: Dataset, tmp_path: Path) -> None:
    one, other = (walk(bench.engine, small, owner=owner) for owner in "ab")
    assert one.result(LONG) is other.result(LONG)
    n_slices = len(bench.ran)
    assert walk(bench.engine, small, owner="c").state == "succeeded"
    again = Bench(tmp_path)
    stored = walk(again.engine, small)
    assert stored.state == "succeeded"
    assert same_run(stored.result(), one.result())
    assert len(stored.events()) == 40
    assert (len(bench.ran), again.ran) == (n_slices, [])
    again.engine.close()


def test_many_threads_that_ask_at_once_start_one_job(bench: Bench, small: Dataset) -> None:
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda owner: walk(bench.engine, small, owner=owner), "abcdefgh"))
    assert len({id(job.result(LONG)) for job in jobs}) == 1
    assert len({work.key for (work,) in bench.ran}) == 1


def test_a_job_is_found_by_its_run(bench: Bench, small: Dataset) -> None:
    job = walk(bench.engine, small)
    found = bench.engine.find(job.run_id)
    assert found is not None
    assert found.result(LONG) is job.result(LONG)
    assert bench.engine.find("walk-0123456789abcdef") is None


def test_a_failed_or_stopped_run_may_be_tried_again(bench: Bench, small: Dataset) -> None:
    failed = walk(bench.engine, small, harm="raises")
    failed.wait(LONG)
    stopped = walk(bench.engine, small, n_steps=10_000)
    assert stopped.stop()
    again = walk(bench.engine, small, n_steps=10_000)
    assert again._task is not stopped._task
    stopped.wait(LONG)
    assert (stopped.state, again.state in ("queued", "running")) == ("cancelled", True)
    again.stop()
    assert walk(bench.engine, small, harm="raises")._task is not failed._task


def test_what_cannot_be_stored_is_still_a_result(small: Dataset, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    bench = Bench(tmp_path / "file")
    job = walk(bench.engine, small)
    assert job.result(LONG).algorithm == "walk"
    assert "couldn't be stored" in job.note
    bench.engine.close()


@pytest.mark.parametrize(("name", "error"), [("alphago", UnknownName), ("walk", InvalidConfig)])
def test_a_bad_order_is_refused_at_once(name: str, error: type[Exception], bench: Bench, small: Dataset) -> None:
    with pytest.raises(error):
        bench.engine.submit(small, name, n_steps=-1)
    assert not bench.engine.jobs()


# -- turns -----------------------------------------------------------------------------------------------------------


def held(bench: Bench, dataset: Dataset) -> Job:
    """A job that keeps the slot until it is stopped."""
    holder = bench.engine.submit(dataset, "walk_whole", n_steps=100_000, pause=0.005, owner="z", seed=99)
    until(lambda: holder.state == "running")
    return holder


def test_owners_take_turns_and_keep_their_order(bench: Bench, small: Dataset) -> None:
    holder = held(bench, small)
    jobs = [walk(bench.engine, small, seed=seed, owner=owner) for seed, owner in enumerate("aaabc")]
    bench.ran.clear()
    holder.stop()
    assert all(job.wait(LONG) for job in jobs)
    del bench.ran[: bench.seeds.index(0)]  # the holder's last turns
    first = {seed: bench.seeds.index(seed) for seed in range(5)}
    last = {seed: len(bench.seeds) - bench.seeds[::-1].index(seed) for seed in range(5)}
    assert first[0] < last[0] <= first[1] < last[1] <= first[2], "an owner's jobs come one after the other"
    assert max(first[3], first[4]) < last[0], "everybody starts before the first has finished"
    shared = bench.seeds[max(first[3], first[4]) : min(last[0], last[3], last[4])]
    assert all(one != other for one, other in pairwise(shared)), "nobody has two turns in a row"


def test_an_owners_trainings_take_turns_and_their_seeds_keep_their_order(bench: Bench, small: Dataset) -> None:
    holder = held(bench, small)
    jobs = [walk(bench.engine, small, seed=seed, n_steps=n, owner="a") for seed, n in enumerate((40, 40, 41, 41))]
    assert [job.place for job in jobs] == [1, 3, 2, 4]
    bench.ran.clear()
    holder.stop()
    assert all(job.wait(LONG) for job in jobs)
    del bench.ran[: bench.seeds.index(0)]
    first = {seed: bench.seeds.index(seed) for seed in range(4)}
    last = {seed: len(bench.seeds) - bench.seeds[::-1].index(seed) for seed in range(4)}
    assert last[0] <= first[1]
    assert last[2] <= first[3]
    shared = bench.seeds[max(first[0], first[2]) : min(last[0], last[2])]
    assert len(shared) > 2
    assert all(one != other for one, other in pairwise(shared)), "no training has two turns in a row"


def test_a_learner_that_cannot_resume_keeps_its_slot(bench: Bench, small: Dataset) -> None:
    parameters = {"n_steps": 30, "pause": 0.005}
    whole = bench.engine.submit(small, "walk_whole", owner="a", seed=1, **parameters)
    until(lambda: whole.state == "running")
    other = walk(bench.engine, small, owner="b", seed=2)
    assert other.result(LONG)
    assert whole.state == "succeeded"
    assert bench.seeds == sorted(bench.seeds)
    assert bench.seeds.count(1) > 2


def test_the_place_in_the_line(bench: Bench, small: Dataset) -> None:
    holder = held(bench, small)
    jobs = [walk(bench.engine, small, seed=seed, owner=owner) for seed, owner in enumerate("aabbc")]
    assert [job.place for job in (holder, *jobs)] == [0, 1, 4, 2, 5, 3]
    jobs[0].stop()
    until(lambda: jobs[0].state == "cancelled")
    assert [job.place for job in jobs] == [0, 1, 2, 4, 3]
    assert [job.owner for job in bench.engine.jobs()].count("b") == 2
    holder.stop()
    assert all(job.wait(LONG) for job in jobs)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.booleans()), max_size=12))
@few_examples
def test_places_are_the_order_in_which_first_turns_come(arrivals: list[tuple[str, str, bool]]) -> None:
    line: Line[int] = Line(lambda number: arrivals[number][1])
    for number, (owner, _, takes_turn) in enumerate(arrivals):
        line.add(owner, number)
        if takes_turn:
            line.next(lambda _: True)
    waiting = line.jobs()
    places = {line.place(job, waiting): job for job in waiting}
    order = []
    while (job := line.next(lambda _: True)) is not None:
        order.append(job)
        line.remove(job)  # each first turn is the last one
    assert order == [places[place] for place in sorted(places)]
    assert sorted(places) == list(range(1, len(waiting) + 1))


def test_nobody_fills_the_line(small: Dataset, tmp_path: Path) -> None:
    bench = Bench(tmp_path, per_owner=2, in_all=3)
    jobs = [walk(bench.engine, small, n_steps=10_000, seed=seed, owner="a") for seed in range(2)]
    assert walk(bench.engine, small, n_steps=10_000, seed=0, owner="a").run_id == jobs[0].run_id, "not one more"
    with pytest.raises(TooManyJobs, match="2 of your jobs are not finished"):
        walk(bench.engine, small, seed=2, owner="a")
    walk(bench.engine, small, n_steps=10_000, seed=2, owner="b")
    with pytest.raises(TooManyJobs, match="3 jobs wait on this server"):
        walk(bench.engine, small, seed=3, owner="c")
    jobs[1].stop()
    jobs[1].wait(LONG)
    walk(bench.engine, small, seed=3, owner="c")
    bench.engine.close()


# -- many seeds at once ----------------------------------------------------------------------------------------------


def walks(engine: Engine, dataset: Dataset, seeds: range, n_steps: int = 40, owner: str = "", **more: Any) -> list[Job]:
    return engine.submit_seeds(dataset, "walks", seeds=seeds, owner=owner, n_steps=n_steps, pause=0.005, **more)


def same_as_alone(jobs: list[Job], dataset: Dataset, n_steps: int = 40, **more: Any) -> bool:
    """Whether each gives the run that training its seed alone gives, bit for bit."""
    return all(
        same_run(
            job.result(LONG),
            orl.train(dataset, "walks", seed=job.result().seed, n_steps=n_steps, pause=0.005, **more),
        )
        for job in jobs
    )


@pytest.mark.parametrize("name", [name for name, spec in ALGORITHMS.items() if spec.train_seeds] + ["walks"])
def test_seeds_are_put_together_and_taken_apart_between_any_two_signs_of_life(name: str, small: Dataset) -> None:

    spec, seeds, rng = ALGORITHMS[name], [3, 5, 8], np.random.default_rng(0)
    assert spec.train_seeds is not None
    assert spec.resumable
    parameters: dict[str, Any] = (
        {"n_steps": 30} if name == "walks" or "n_steps" in spec.config_class.__dataclass_fields__ else {}
    )
    config = make_config(spec.config_class, parameters, name)
    states: dict[int, Any] = dict.fromkeys(seeds)
    histories = {seed: History() for seed in seeds}
    models: dict[int, TrainedModel] = {}
    while len(models) < len(seeds):
        n_signs = int(rng.integers(1, 6))
        together = list(rng.permutation([seed for seed in seeds if seed not in models])[: int(rng.integers(1, 4))])
        for group in (together, [s for s in seeds if s not in together and s not in models]):  # in step: all of them
            if group:
                resumed = [decode_state(states[s]) for s in group] if states[group[0]] else None
                training = spec.train_seeds(small, config, seeds=[int(s) for s in group], resume_from=resumed)
                for _ in range(n_signs):
                    try:
                        signs = next(training)
                    except StopIteration as finished:
                        models |= dict(zip(group, finished.value, strict=True))
                        break
                    for s, progress in zip(group, signs, strict=True):
                        histories[s].append(progress)
                        states[s] = encode_state(progress.state)
                training.close()
    for seed, model in models.items():
        alone = orl.train(small, name, seed=int(seed), **parameters)
        assert same_run(named_model(model, name, config, int(seed), histories[seed]), alone)


def test_seeds_share_their_slices_and_each_is_a_run_of_its_own(bench: Bench, small: Dataset, tmp_path: Path) -> None:
    jobs = walks(bench.engine, small, range(4))
    assert same_as_alone(jobs, small)
    assert set(bench.batches) == {(0, 1, 2, 3)}
    assert len({job.run_id for job in jobs}) == 4
    assert {orl.load_run(job.run_id, tmp_path).seed for job in jobs} == {0, 1, 2, 3}
    more = walks(bench.engine, small, range(6))
    assert same_as_alone(more, small)
    assert bench.batches[-1] == (4, 5), "what is done isn't done again"


def test_only_what_differs_in_nothing_but_the_seed_is_put_together(bench: Bench, small: Dataset) -> None:
    other = orl.frame(orl.collect("calculator", n_episodes=20, seed=1))
    holder = held(bench, small)
    walks(bench.engine, small, range(2), owner="a")
    walks(bench.engine, small, range(2), n_steps=41, owner="a")
    walks(bench.engine, other, range(2), owner="a")
    walk(bench.engine, small, seed=0, owner="a")
    walk(bench.engine, small, seed=1, owner="a")
    bench.ran.clear()
    jobs = bench.engine.jobs()
    holder.stop()
    assert all(job.wait(LONG) for job in jobs)
    shared = {tuple(work.key for work in works) for works in bench.ran if len(works) > 1}
    assert len(shared) == 3
    assert {works[0].algorithm.name for works in bench.ran if len(works) > 1} == {"walks"}


def test_a_class_with_a_seed_each_shares_its_turns(bench: Bench, small: Dataset) -> None:
    holder = held(bench, small)
    jobs = [walks(bench.engine, small, range(i, i + 1), owner=str(i))[0] for i in range(5)]
    odd = walk(bench.engine, small, owner="odd", seed=77)
    bench.ran.clear()
    holder.stop()
    assert same_as_alone(jobs, small)
    assert odd.result(LONG)
    del bench.ran[: bench.batches.index((0, 1, 2, 3, 4))]
    whose = [len(seeds) for seeds in bench.batches]
    both = whose[: min(len(whose) - whose[::-1].index(n) for n in (1, 5))]
    assert set(whose) == {1, 5}
    assert all(one != following for one, following in pairwise(both)), "all of them take one turn, and then the next"


def test_who_brings_fewer_seeds_is_not_slowed_down_by_those_of_others(bench: Bench, small: Dataset) -> None:
    holder = held(bench, small)
    many = walks(bench.engine, small, range(3), owner="many")
    one = walks(bench.engine, small, range(5, 6), owner="one")
    bench.ran.clear()
    holder.stop()
    assert same_as_alone([*many, *one], small)
    assert {(0, 1, 2), (5,)} == {seeds for seeds in bench.batches if 99 not in seeds}


def test_a_stopped_seed_leaves_and_the_others_go_on_together(bench: Bench, small: Dataset) -> None:
    jobs = walks(bench.engine, small, range(3), n_steps=200)
    until(lambda: jobs[1].progress())
    assert jobs[1].stop()
    assert jobs[1].wait(LONG)
    assert (jobs[1].state, jobs[0].state) == ("cancelled", "running")
    assert same_as_alone([jobs[0], jobs[2]], small, n_steps=200)
    assert bench.batches[-1] == (0, 2)


def test_a_seed_that_diverges_ends_and_the_others_go_on(bench: Bench, small: Dataset) -> None:
    jobs = walks(bench.engine, small, range(3), harm="diverges", harmed=1)
    assert same_as_alone(jobs, small, harm="diverges", harmed=1)
    assert [job.result().problem for job in jobs] == ["", "At step 21 size is not finite.", ""]
    assert [len(job.events()) for job in jobs] == [40, 20, 40]
    assert (0, 2) in bench.batches[bench.batches.index((1,)) :], "it needn't wait for the others"


@pytest.mark.parametrize("harm", ["raises", "leaves"])
def test_a_failure_in_a_batch_is_that_of_one_seed(harm: str, bench: Bench, small: Dataset) -> None:
    jobs = walks(bench.engine, small, range(3), harm=harm, harmed=1)
    assert same_as_alone([jobs[0], jobs[2]], small, harm=harm, harmed=1)
    assert jobs[1].wait(LONG)
    assert jobs[1].error.startswith("The learner failed.")


def test_a_death_in_a_batch_is_forgiven_once_to_each(bench: Bench, small: Dataset) -> None:
    bench.slot.deaths = {1: 2}
    jobs = walks(bench.engine, small, range(3))
    assert same_as_alone([jobs[0], jobs[2]], small)
    assert jobs[1].wait(LONG)
    assert jobs[1].error == "Its worker process was killed 2 times, so it isn't tried again."


def test_too_many_seeds_are_refused_before_one_starts(small: Dataset, tmp_path: Path) -> None:
    bench = Bench(tmp_path, per_owner=3)
    with pytest.raises(TooManyJobs, match="at most 3"):
        walks(bench.engine, small, range(4))
    assert not bench.engine.jobs()
    assert same_as_alone(walks(bench.engine, small, range(3)), small)
    bench.engine.close()


# -- stopping --------------------------------------------------------------------------------------------------------


def test_a_waiting_job_stops_at_once_and_a_running_one_after_its_slice(bench: Bench, small: Dataset) -> None:
    running = walk(bench.engine, small, n_steps=100_000, owner="a", seed=1)
    until(lambda: running.progress())
    waiting = walk(bench.engine, small, n_steps=100_000, owner="a", seed=2)
    assert waiting.state == "queued"
    assert waiting.stop()
    assert waiting.wait(LONG)
    assert 2 not in bench.seeds
    assert running.stop()
    assert running.wait(LONG)
    n_slices = len(bench.ran)
    assert (running.state, waiting.state) == ("cancelled", "cancelled")
    with pytest.raises(JobCancelled, match="was stopped"):
        running.result()
    time.sleep(0.05)
    assert len(bench.ran) == n_slices, "cancelled means that nothing goes on"
    assert not running.stop()


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_a_run_that_was_stopped_goes_on_where_it_stood_and_ends_the_same(
    n_seeds: int, bench: Bench, small: Dataset
) -> None:
    stood, seconds = 0, 0.0
    for _ in range(3):
        jobs = walks(bench.engine, small, range(n_seeds), n_steps=150)
        assert all(step_of(job) >= stood and job.seconds >= seconds for job in jobs)
        until(lambda jobs=jobs, stood=stood: all(step_of(job) > stood for job in jobs))
        assert all(job.stop() for job in jobs)
        assert all(job.wait(LONG) for job in jobs)
        assert all((job.state, job.can_go_on) == ("cancelled", True) for job in jobs)
        stood, seconds = min(step_of(job) for job in jobs), min(job.seconds for job in jobs)
    last = walks(bench.engine, small, range(n_seeds), n_steps=150)
    assert all(step_of(job) >= stood for job in last)
    assert same_as_alone(last, small, n_steps=150)


BUDGETED = [name for name, spec in ALGORITHMS.items() if "n_steps" in spec.config_class.__dataclass_fields__]


@pytest.mark.parametrize("name", BUDGETED)
def test_a_run_of_fewer_steps_is_the_beginning_of_a_longer_one(name: str, small: Dataset) -> None:
    """Stopped anywhere, it may end one step later or go on to any other budget, with the bits of a run that never stopped."""
    spec, few = ALGORITHMS[name], {"batch_size": 8}
    long = spec.train(small, make_config(spec.config_class, {**few, "n_steps": 300}, name), seed=2)
    signs = [next(long) for _ in range(5)]
    stood = decode_state(encode_state(signs[-1].state))
    long.close()
    n_steps = signs[-1].step + 1
    config = make_config(spec.config_class, {**few, "n_steps": n_steps}, name)
    history = History()
    for sign in signs:
        history.append(replace(sign, total=n_steps))
    training = spec.train(small, config, seed=2, resume_from=stood)
    while True:
        try:
            history.append(next(training))
        except StopIteration as finished:
            kept = named_model(finished.value, name, config, 2, history)
            break
    assert same_run(kept, orl.train(small, name, seed=2, n_steps=n_steps, **few))


def test_a_stopped_run_goes_on_to_a_shorter_or_a_longer_budget(bench: Bench, small: Dataset) -> None:
    stopped = walks(bench.engine, small, range(2), n_steps=100_000)
    until(lambda: all(step_of(job) > 3 for job in stopped))
    assert all(job.stop() for job in stopped)
    assert all(job.wait(LONG) for job in stopped)
    n_steps = max(step_of(job) for job in stopped) + 1
    kept = walks(bench.engine, small, range(2), n_steps=n_steps)
    assert all(step_of(job) >= n_steps - 1 for job in kept), "not from the start"
    assert all(latest.total == n_steps for job in kept if (latest := job.progress()))
    assert same_as_alone(kept, small, n_steps=n_steps)
    assert all(job.can_go_on for job in stopped), "and the longer one may still go on"
    longer = walks(bench.engine, small, range(2), n_steps=n_steps + 20)
    assert all(step_of(job) >= n_steps - 1 for job in longer)
    assert same_as_alone(longer, small, n_steps=n_steps + 20)
    shorter = walks(bench.engine, small, range(2), n_steps=3)
    assert same_as_alone(shorter, small, n_steps=3), "what is over already begins anew"
    other = walk(bench.engine, small, n_steps=n_steps, seed=0, harm="refuses", harmed=7)
    assert step_of(other) == 0, "another learner"


def step_of(job: Job) -> int:
    latest = job.progress()
    return latest.step if latest else 0


def test_states_of_stopped_runs_are_bounded_and_the_oldest_go_first(small: Dataset, tmp_path: Path) -> None:
    bench, stopped = Bench(tmp_path), []
    for seed in range(4):
        job = walk(bench.engine, small, n_steps=100_000, seed=seed)
        until(job.progress)
        job.stop()
        assert job.wait(LONG)
        stopped.append(job)
        if not seed:
            room = 2.5 * len(job._task.checkpoint or b"")
            bench.engine._book._limits = replace(bench.engine._book._limits, stopped_bytes=int(room))
    assert [job.can_go_on for job in stopped] == [False, False, True, True]
    assert step_of(walk(bench.engine, small, n_steps=100_000, seed=1)) == 0, "from the start"
    assert step_of(walk(bench.engine, small, n_steps=100_000, seed=3)) > 0
    bench.engine.close()


def test_a_job_goes_on_while_somebody_wants_it(bench: Bench, small: Dataset) -> None:
    one, other = (walk(bench.engine, small, owner=owner) for owner in "ab")
    assert not one.stop()
    assert other.result(LONG)
    assert one.state == "succeeded"
    looking_on = bench.engine.find(walk(bench.engine, small, seed=9, owner="a").run_id)
    assert looking_on is not None
    assert not looking_on.stop(), "who only looks on can't stop it"


def test_time_runs_out_for_the_caller_alone(bench: Bench, small: Dataset) -> None:
    job = walk(bench.engine, small, n_steps=10_000)
    with pytest.raises(TimeoutError, match="not done after"):
        job.result(0.01)
    until(lambda: job.progress())
    assert job.seconds_left
    assert job.seconds_left > 0
    assert job.state == "running"


# -- learners that say no ----------------------------------------------------------------------------------------------


def test_a_refusal_reaches_the_caller_as_it_is(bench: Bench) -> None:
    dataset = orl.frame(make_log(episode("e", ("s", "a", None), ("s", "b", None))))
    with pytest.raises(NotPossible) as told:
        orl.train(dataset, "fqi_sampled")
    job = bench.engine.submit(dataset, "fqi_sampled")
    with pytest.raises(JobFailed) as failed:
        job.result(LONG)
    assert str(failed.value) == job.error == str(told.value)


@pytest.mark.parametrize(
    ("harm", "error", "n_resets"),
    [
        ("raises", "The learner failed. ValueError: a learner with a bug", 1),
        ("leaves", "The learner failed. SystemExit: 1", 1),
        ("refuses", "This log isn't for me.", 0),
    ],
)
@pytest.mark.parametrize("name", ["walk", "walk_whole"])
def test_a_slot_is_reset_after_every_failure(
    name: str, harm: str, error: str, n_resets: int, bench: Bench, small: Dataset
) -> None:
    job = bench.engine.submit(small, name, pause=0.005, harm=harm)
    assert job.wait(LONG)
    assert (job.state, job.error, bench.slot.n_resets) == ("failed", error, n_resets)
    assert walk(bench.engine, small).result(LONG)


@pytest.mark.parametrize("name", ["walk", "walk_whole"])
def test_one_death_is_forgiven_and_two_are_not(name: str, bench: Bench, small: Dataset) -> None:
    parameters = {"n_steps": 40, "pause": 0.005}
    bench.slot.deaths = {1: 1, 2: 1, 5: 2}
    job = bench.engine.submit(small, name, seed=1, **parameters)
    other = walk(bench.engine, small, seed=2, owner="other")
    assert same_run(job.result(LONG), orl.train(small, name, seed=1, **parameters))
    assert other.result(LONG)
    assert bench.slot.n_resets == 2
    job = bench.engine.submit(small, name, seed=5, **parameters)
    assert job.wait(LONG)
    assert job.error == "Its worker process was killed 2 times, so it isn't tried again."


def test_workers_that_never_start_end_all_that_wait(small: Dataset, tmp_path: Path) -> None:
    class NoSlot:
        def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
            raise OSError("no process for you")

        def reset(self) -> None:
            pass

    engine = Engine(slots=lambda n: [NoSlot()], runs=tmp_path, limits=Limits(pause_seconds=0.01))
    jobs = [walk(engine, small, seed=seed) for seed in range(2)]
    assert all(job.wait(LONG) for job in jobs)
    assert {job.error for job in jobs} == {"No worker process can be started here, so nothing can be trained."}
    engine.close()


class LateSlot(ThreadSlot):
    """A slot whose workers die while they start, so many times."""

    def __init__(self, n_deaths: float) -> None:
        super().__init__([])
        self.left = n_deaths

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if self.left > 0:
            self.left -= 1
            raise OSError("killed while it started")
        return super().submit(function, *arguments)

    def reset(self) -> None:
        if not self.left:  # else nothing ever ran here
            super().reset()


@pytest.mark.parametrize("n_deaths", [[4], [float("inf"), 0]], ids=["four times", "one of two slots, always"])
def test_workers_that_die_while_they_start_end_no_job_as_long_as_one_may_come(
    n_deaths: list[float], small: Dataset, tmp_path: Path
) -> None:
    slots = [LateSlot(n) for n in n_deaths]
    limits = Limits(pause_seconds=0.01, slice_seconds=0.02, first_slice_seconds=0.01)
    engine = Engine(slots=lambda n: slots, runs=tmp_path, limits=limits)
    jobs = [walk(engine, small, seed=seed) for seed in range(2)]
    assert all(job.result(LONG) for job in jobs)
    engine.close()


def test_what_killed_programs_left_behind_is_removed_after_a_day(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = {pid: tmp_path / f"offrl-jobs-{pid}-abc" for pid in (ended.pid, os.getpid())}
    for age in (0, 2 * 86_400):
        for path in names.values():
            path.mkdir(exist_ok=True)
            os.utime(path, (time.time() - age,) * 2)
        remove_left_behind(tmp_path)
        assert names[os.getpid()].exists()
        assert names[ended.pid].exists() == (age == 0)


def test_a_dataset_is_written_again_where_somebody_cleaned_up_and_a_full_disk_is_a_sentence(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    try:
        walk(bench.engine, small).result()
        shutil.rmtree(bench.engine._shelf.directory)
        walk(bench.engine, small, seed=1).result()
        assert bench.engine._shelf.put(small).exists()
        monkeypatch.setattr("offrl_core.jobs.shelf.save_dataset", full_disk)
        with pytest.raises(
            NotPossible, match=r"No temporary file can be written to .*No space left.* Make room there\.$"
        ):
            walk(bench.engine, small, seed=2)
    finally:
        bench.engine.close()


def full_disk(*_: object) -> Path:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_closed_engine_cancels_and_takes_nothing_more(small: Dataset, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    job = walk(bench.engine, small, n_steps=100_000)
    until(lambda: job.progress())
    directory = bench.engine._shelf.directory
    bench.engine.close()
    assert job.state == "cancelled"
    assert directory is not None
    assert not directory.exists()
    with pytest.raises(TooManyJobs, match="shutting down"):
        walk(bench.engine, small, seed=5)
    bench.engine.close()


# -- real processes ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One worker process, impatient."""
    limits = Limits(slice_seconds=0.1, quiet_seconds=3.0, stop_seconds=0.3)
    runs = tmp_path_factory.mktemp("runs")
    made = Engine(slots=lambda n: [slots.LocalSlot(900_000_000, niceness=1)], runs=runs, limits=limits)
    before = threading.active_count()
    assert not list(children(os.getpid())), "nothing starts before the first job"
    yield made
    made.close()
    assert not list(children(os.getpid())), "nothing is left"
    assert threading.active_count() <= before


def worker_pid() -> int:
    (pid,) = children(os.getpid())
    return pid


@needs_proc
def test_a_job_runs_in_a_quiet_process_without_torch(engine: Engine, small: Dataset) -> None:
    job = engine.submit(small, "fqi_sampled", n_sweeps=40)
    assert same_run(job.result(LONG), orl.train(small, "fqi_sampled", n_sweeps=40))
    pid = worker_pid()
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + 1, 19)
    environment = Path(f"/proc/{pid}/environ").read_text()
    assert "OMP_NUM_THREADS=1" in environment
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert [line.split()[3:5] for line in limits.splitlines() if line.startswith("Max data size")] == [
        ["900000000"] * 2
    ]
    assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()


@needs_proc
def test_a_killed_worker_costs_time_and_not_one_bit(engine: Engine, small: Dataset) -> None:
    job = walk(engine, small, n_steps=60, pause=0.01, seed=3)
    until(lambda: job.progress())
    os.kill(worker_pid(), signal.SIGKILL)
    assert same_run(job.result(LONG), orl.train(small, "walk", n_steps=60, pause=0.01, seed=3))


@needs_proc
def test_a_killed_worker_costs_a_batch_time_and_not_one_bit(engine: Engine, small: Dataset) -> None:
    jobs = walks(engine, small, range(3), n_steps=60)
    until(lambda: jobs[0].progress())
    os.kill(worker_pid(), signal.SIGKILL)
    assert same_as_alone(jobs, small, n_steps=60)


@needs_proc
def test_a_seed_that_hangs_takes_no_other_with_it(engine: Engine, small: Dataset) -> None:
    jobs = walks(engine, small, range(3), harm="hangs", harmed=2)
    assert same_as_alone(jobs[:2], small, harm="hangs", harmed=2)
    assert jobs[2].wait(LONG)
    assert jobs[2].error == "It gave no sign of life for 3 s, so it was ended."


@needs_proc
def test_poison_stays_with_those_who_brought_it(engine: Engine, small: Dataset) -> None:
    """Each harmful job of one owner takes turns with good ones of another on the same worker."""
    harmful = {
        "exits": "Its worker process was killed 2 times, so it isn't tried again.",
        "hangs": "It gave no sign of life for 3 s, so it was ended.",
        "hogs": "The learner failed. It needs more memory than a worker may use.",
    }
    bad = {harm: walk(engine, small, harm=harm, owner="bad") for harm in harmful}
    good = {seed: walk(engine, small, seed=seed, n_steps=60, pause=0.01, owner="good") for seed in (11, 12)}
    for seed, job in good.items():
        assert same_run(job.result(LONG), orl.train(small, "walk", seed=seed, n_steps=60, pause=0.01))
    assert all(job.wait(LONG) for job in bad.values())
    assert {harm: job.error for harm, job in bad.items()} == harmful
    assert {job.state for job in bad.values()} == {"failed"}
    assert walk(engine, small, seed=13).result(LONG), "the worker is whole again"


@needs_proc
def test_stop_kills_what_does_not_come_back(engine: Engine, small: Dataset) -> None:
    engine.submit(small, "bc").result(LONG)  # the worker is there
    job = walk(engine, small, n_steps=3, pause=10.0)
    until(lambda: job.state == "running")
    pid, began = worker_pid(), time.monotonic()
    assert job.stop()
    assert job.wait(LONG)
    assert job.state == "cancelled"
    assert pid not in children(os.getpid()), "cancelled is said when the work has stopped"
    assert time.monotonic() - began < 5.0, "a step takes 10 s; on an idle machine this is some 0.4 s"


# -- other processes --------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys, time
import offrl_core as orl
from offrl_core import jobs
from tests.core.odd_learners import WALK, children
orl.ALGORITHMS["walk"] = WALK
jobs._engines.append(jobs.Engine(slots=lambda n: [jobs.slots.LocalSlot(niceness=1)]))  # a busy machine would starve it
dataset = orl.frame(orl.collect("calculator", "logger_without_mul", n_episodes=60, seed=3))
assert not list(children(os.getpid()))
done = orl.submit(dataset, "walk", seed=21)
done.result(100)
hung = orl.submit(dataset, "walk", seed=22, n_steps=40, pause=0.02, harm="hangs")
while not hung.progress():
    time.sleep(0.01)
print(done.run_id, *children(os.getpid()), "torch" in sys.modules, hung._engine._shelf.directory, flush=True)
if sys.argv[1] == "waits":
    time.sleep(1000)
"""


def program(runs: Path, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how],
        cwd=ROOT,
        env={**os.environ, "OFFRL_RUNS": str(runs), "TMPDIR": str(runs.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@needs_proc
def test_a_program_leaves_its_runs_behind_and_nothing_else(small: Dataset, tmp_path: Path) -> None:
    """One program ends in the middle of a hung job, another is killed: no process stays, and the runs are found."""
    programs = {how: program(tmp_path / how, how) for how in ("ends", "waits")}
    for how, process in programs.items():
        assert process.stdout
        run_id, *pids, has_torch, directory = process.stdout.readline().split()
        assert pids
        assert has_torch == "False"
        if how == "waits":
            process.kill()
        _, errors = process.communicate(timeout=LONG)
        assert errors == "" or how == "waits", "loky says so when it tidies up behind the dead"
        until(lambda pids=pids: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
        assert os.path.exists(directory) == (how == "waits")
        assert same_run(orl.load_run(run_id, tmp_path / how), orl.train(small, "walk", seed=21))


# -- a cluster ------------------------------------------------------------------------------------------------------


def test_a_cluster_without_ray_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(slots.ADDRESS_VARIABLE, "ray://nowhere:10001")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NotPossible, match="pip install ray"):
        slots.make_slots(1)


def test_the_same_bits_on_a_cluster(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setenv(slots.ADDRESS_VARIABLE, "local")
    engine = Engine(n_slots=1, runs=tmp_path, limits=Limits(slice_seconds=0.1, quiet_seconds=20.0))
    jobs = [walk(engine, small, seed=3, harm=harm) for harm in ("none", "exits")]
    assert same_run(jobs[0].result(LONG), orl.train(small, "walk", seed=3, n_steps=40, pause=0.005))
    assert jobs[1].wait(LONG)
    assert "killed 2 times" in jobs[1].error
    engine.close()
    ray.shutdown()


def test_numbers_of_a_walk_differ_by_seed(small: Dataset) -> None:
    """The oracle can fail: another seed, other bits."""
    one, other = (orl.train(small, "walk", seed=seed) for seed in (1, 2))
    assert not np.array_equal(one.q_values, other.q_values)
