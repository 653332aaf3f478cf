"""Learning from counts against learning row by row, and both halves of it against bare libraries at a million rows."""

from __future__ import annotations

import gc
import statistics
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa

import offrl_core as orl
from offrl_core.dataset import Dataset
from offrl_core.edges import Edges, Transitions, aggregate
from offrl_core.mdp import Successors, TabularMDP

from .measure import Line, Work, cost, duration, faster, interleaved, seconds_of

SWEEPS, LEARNING_RATE = 200, 0.25
N_ROWS, N_STATES, N_ACTIONS, N_SUCCESSORS, ENDING_SHARE = 1_000_000, 10_000, 10, 5, 0.05


Step = tuple[str, str, float, str | None]  # state key, action name, reward, next state key


def steps_of(dataset: Dataset) -> list[Step]:
    """The rows as the log gives them."""
    table = f"framed_steps_{dataset.framing.token}"
    return dataset.log.rows(f"SELECT state_key, action_name, framed_reward, next_state_key FROM {table} ORDER BY row")


def row_by_row(steps: list[Step], dataset: Dataset) -> dict[tuple[str, str], float]:
    """The published procedure as anyone would write it first: 200 passes, one small step per row.

    Q is a dict here; with a NumPy table, whose cells are slow to reach from Python, the loop takes three times as long.
    """
    names, discount = np.array(dataset.actions), dataset.discount
    valid = {state: names[mask].tolist() for state, mask in zip(dataset.states, dataset.valid_mask, strict=True)}
    q_values = {(state, action): 0.0 for state in valid for action in dataset.actions}
    for _ in range(SWEEPS):
        for state, action, reward, following in steps:
            target = reward
            if following is not None:
                target += discount * max(q_values[following, a] for a in valid[following])
            q_values[state, action] += LEARNING_RATE * (target - q_values[state, action])
    return q_values


def block_median(work: Work, repetitions: int) -> float:
    """Median seconds of a work done several times in a row."""
    return statistics.median(seconds_of(work) for _ in range(repetitions))


def learning_lines() -> list[Line]:
    """Naive FQI on the bundled log, from three places on the way, against the row-by-row loop."""
    dataset = orl.frame(orl.bundled_log("calculator"))
    rows, steps, log = dataset.transitions(), steps_of(dataset), dataset.log

    def from_memory() -> None:
        orl.train(replace(dataset, edges=aggregate(rows)), "fqi")

    def from_frame() -> None:
        orl.train(orl.frame(log), "fqi")

    def from_parquet() -> None:
        orl.train(orl.frame(orl.bundled_log("calculator")), "fqi")

    def by_rows() -> None:
        row_by_row(steps, dataset)

    gc.freeze()  # so that nobody's garbage collection walks over the rows of another
    # One loop takes as long as thousands of ours, so each turn holds a block of each of ours.
    blocks = {from_memory: 300, from_frame: 300, from_parquet: 30, by_rows: 1}
    turns = [[block_median(work, n) for work, n in blocks.items()] for _ in range(3)]
    memory, frame, parquet, loop = (statistics.median(column) for column in zip(*turns, strict=True))
    peer = "row by row, 200 sweeps"
    return [
        faster("naive FQI, 12,000 framed rows in memory: aggregate, solve", memory, loop, peer, 5000),
        Line(
            "the same through `orl.frame` of a log framed before, its counts kept",
            duration(frame),
            f"{duration(loop)}, {peer}",
            f"{loop / frame:,.0f}x faster",
        ),
        faster("the same from the Parquet file: read, frame, aggregate, solve", parquet, loop, peer, 300),
    ]


def synthetic_rows(seed: int = 0) -> Transitions:
    """A million rows: few states get most visits, five successors per pair, one row in twenty ends."""
    rng = np.random.default_rng(seed)
    states = (rng.random(N_ROWS) ** 2 * N_STATES).astype(np.int64)
    actions = np.minimum(rng.geometric(0.4, N_ROWS) - 1, N_ACTIONS - 1)
    successor = rng.integers(N_SUCCESSORS, size=N_ROWS)
    following = (states * 7919 + actions * 104729 + successor * 1299709) % N_STATES
    ends = rng.random(N_ROWS) < ENDING_SHARE
    return Transitions(
        states, actions, rng.random(N_ROWS), np.where(ends, -1, following), ends, np.zeros(N_ROWS, dtype=bool)
    )


def synthetic_table(rows: Transitions) -> duckdb.DuckDBPyConnection:
    """The same rows in DuckDB, as the table ``synthetic``, with the integers as narrow as they can be."""
    columns = {
        "s": rows.observations.astype(np.int32),
        "a": rows.actions.astype(np.int32),
        "s2": rows.next_observations.astype(np.int32),
        "ending": rows.endings,
        "framed_reward": rows.rewards,
    }
    connection = duckdb.connect(config={"threads": "1"})
    connection.register("given", pa.table(columns))
    connection.execute("CREATE TABLE synthetic AS FROM given")
    return connection


def million_lines() -> list[Line]:
    """Aggregation against a bare GROUP BY, a sweep against a bare sparse product."""
    rows = synthetic_rows()
    table = synthetic_table(rows)
    bare = "SELECT s, a, s2, ending, count(*), sum(framed_reward) FROM synthetic GROUP BY s, a, s2, ending"
    ours, peer = interleaved([lambda: aggregate(rows), lambda: table.execute(bare).fetchnumpy()], 9)
    mdp, values = synthetic_process(aggregate(rows)), np.random.default_rng(1).random(N_STATES)
    sweep, product = interleaved(
        [lambda: mdp.backup(values, 0.99).max(axis=0), lambda: mdp.successors.matrix @ values], 101
    )
    size = f"{N_ROWS:,} rows, {N_STATES:,} states x {N_ACTIONS} actions"
    return [
        cost(f"aggregate {size}", ours, peer, "bare DuckDB GROUP BY", 1.2),
        cost(f"one sweep over its {mdp.successors.matrix.nnz:,} edges", sweep, product, "bare SciPy CSR product", 1.5),
    ]


def synthetic_process(edges: Edges) -> TabularMDP:
    """The counts of the million rows as a process."""
    totals = np.zeros((N_STATES, N_ACTIONS))
    np.add.at(totals, (edges.states, edges.actions), edges.counts)
    rewards = np.zeros_like(totals)
    np.add.at(rewards, (edges.states, edges.actions), edges.reward_sums)
    successors = Successors(
        N_STATES,
        N_ACTIONS,
        states=edges.states,
        actions=edges.actions,
        next_states=edges.next_states,
        probabilities=edges.counts / totals[edges.states, edges.actions],
    )
    return TabularMDP(rewards=np.ascontiguousarray((rewards / np.maximum(totals, 1)).T), successors=successors)
