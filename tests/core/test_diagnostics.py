"""What stands behind a cell: evidence equals a recount of the rows, parts add up to the value, orders put the worst on top."""

import numpy as np
import pandas as pd
import pytest

import offrl_core as orl
from offrl_core.evaluation.diagnostics import (
    band_means,
    evidence,
    policy_values_of,
    promised_return,
    sort_order,
    state_table,
    value_parts,
)

CHOICE = "mul: x, y known"


@pytest.fixture(scope="module")
def edited(log_with_mul):
    return orl.frame(
        log_with_mul, edits=[orl.KeepFraction(0.3), orl.DropAction("sub", where="task = 'mul'", how="episodes")]
    )


def test_evidence_equals_a_recount_of_the_kept_rows(edited):
    kept = edited.cursor().execute(f"SELECT episode_id, t, s, a, framed_reward FROM ({edited.relation})").df()
    for state, action in [(CHOICE, "mul"), (CHOICE, "add"), ("add: start", "lookup_x")]:
        found = evidence(edited, state, action)
        s, a = edited.state_index(state), edited.actions.index(action)
        rows = found.rows
        assert found.n_rows == edited.visitation_counts[s, a] == len(rows) or found.n_rows > 200 == len(rows)
        assert set(rows["state_key"]) == {state}
        assert set(rows["action_name"]) == {action}
        returns = []
        pairs = rows if found.n_rows <= 200 else None
        for _, row in [] if pairs is None else pairs.iterrows():
            later = kept[(kept["episode_id"] == row["episode_id"]) & (kept["t"] >= row["t"])]
            returns.append((later["framed_reward"] * edited.discount ** (later["t"] - row["t"])).sum())
        if returns:
            assert found.mean_return == pytest.approx(np.mean(returns), abs=1e-12)
            assert found.n_episodes == rows["episode_id"].nunique()


def test_a_pair_nobody_saw_has_no_mean_and_no_row(edited):
    found = evidence(edited, CHOICE, "sub")
    assert (found.n_rows, found.n_episodes, found.mean_reward, found.mean_return) == (0, 0, None, None)
    assert found.rows.empty


def test_names_with_quotes_stay_data():
    from .helpers import make_log

    name = "it's; DROP TABLE steps"
    log = make_log([{"episode_id": "a", "t": 0, "state_text": name, "action": name, "reward": 1.0, "terminal": True}])
    found = evidence(orl.frame(log), name, name)
    assert found.n_rows == 1
    assert "it''s" in found.sql


@pytest.mark.parametrize("algorithm", ["fqi", "fqi_support"])
def test_the_parts_of_a_value_add_up_to_it(dataset_without_mul, algorithm):
    model = orl.train(dataset_without_mul, algorithm)
    for s, a in np.argwhere(dataset_without_mul.visitation_counts > 0):
        parts = value_parts(dataset_without_mul, model, int(s), int(a))
        assert parts.total == pytest.approx(model.q_values[s, a], abs=1e-12)
        assert sum(part.probability for part in parts.parts) == pytest.approx(1.0)


def test_a_value_without_rows_is_said_to_be_the_default(dataset_without_mul):
    model = orl.train(dataset_without_mul, "fqi", default_value=0.25)
    s, a = dataset_without_mul.state_index(CHOICE), dataset_without_mul.actions.index("mul")
    assert value_parts(dataset_without_mul, model, s, a).total is None
    assert model.q_values[s, a] == 0.25


def test_orders_put_on_top_what_they_promise(dataset_without_mul):
    model = orl.train(dataset_without_mul, "fqi")
    table = state_table(dataset_without_mul, model, orl.exact_q_of(model, dataset_without_mul))
    first = {
        by: table.iloc[sort_order(by, table, dataset_without_mul.valid_mask)[0]]
        for by in ("visits", "overestimation", "unsupported", "choice")
    }
    assert first["visits"]["visits"] == table["visits"].max()
    assert first["overestimation"]["overestimation"] == table["overestimation"].max()
    assert first["unsupported"]["state"] == CHOICE
    assert first["choice"]["state"].endswith("x, y known")
    assert list(sort_order("state", table, dataset_without_mul.valid_mask)) == list(range(len(table)))


def test_a_policy_that_mixes_is_worth_the_mean_of_what_it_does(dataset_with_mul):
    model = orl.train(dataset_with_mul, "kl_regularized")
    probabilities = model.policy.probabilities
    assert ((probabilities > 0).sum(axis=1) > 1).any()
    by_hand = [
        sum(p * q for p, q in zip(ps, qs, strict=True) if p > 0)
        for ps, qs in zip(probabilities.tolist(), model.q_values.tolist(), strict=True)
    ]
    np.testing.assert_allclose(policy_values_of(model), by_hand)
    starts = dataset_with_mul.start_counts
    assert promised_return(dataset_with_mul, model) == pytest.approx(float((starts * by_hand).sum() / starts.sum()))


def test_unknown_truth_is_nan_in_the_table_and_never_zero(dataset_without_mul):
    table = state_table(dataset_without_mul, orl.train(dataset_without_mul, "bc"), None)
    assert table[["learned_q", "true_q", "overestimation"]].isna().all(axis=None)


def test_bands_are_means_over_their_states():
    q_values = np.array([[1.0, np.nan], [3.0, 5.0], [7.0, np.nan]])
    valid, supported = ~np.isnan(q_values), np.array([[True, True], [False, True], [True, False]])
    means, shares = band_means([np.array([0, 1]), np.array([2])], q_values, valid, supported)
    pd.testing.assert_frame_equal(pd.DataFrame(means), pd.DataFrame([[2.0, 5.0], [7.0, np.nan]]))
    assert shares.tolist() == [[0.5, 0.0], [0.0, 0.0]]


def test_the_promise_is_the_value_at_the_starts_and_the_log_keeps_its_own(dataset_with_mul):
    model = orl.train(dataset_with_mul, "fqi")
    starts = {task: dataset_with_mul.state_index(f"{task}: start") for task in ("add", "sub", "mul")}
    counts = dataset_with_mul.start_counts
    assert counts.sum() == 3000 == sum(counts[row] for row in starts.values())
    expected = sum(counts[row] * np.nanmax(model.q_values[row]) for row in starts.values()) / 3000
    assert promised_return(dataset_with_mul, model) == pytest.approx(expected)
    assert promised_return(dataset_with_mul, orl.train(dataset_with_mul, "bc")) is None
    success, _ = dataset_with_mul.success_rate()
    costs = 0.02 * (1 + 0.99 + 0.99**2 + 0.99**3)
    assert dataset_with_mul.mean_return == pytest.approx((2 * success - 1) * 0.99**3 - costs)
    assert np.nanmean(dataset_with_mul.episode_returns) == pytest.approx(success * 0.92 - (1 - success) * 1.08)
