"""The paragraph never says what the numbers don't: every scene the first screen can show, told and checked."""

import pytest

import offrl_core as orl
from offrl_core.story import ABOUT_EQUAL, BY_ACCIDENT, Scene, about_bars, about_small_bars, tell

LEARNERS = ("bc", "fqi", "fqi_support", "cql")


def scene(dataset, deployment, guess) -> Scene:
    models = {name: orl.train(dataset, name, **({} if name == "bc" else {"default_value": guess})) for name in LEARNERS}
    row = dataset.state_index("mul: x, y known")
    counts, mul = dataset.visitation_counts[row], dataset.actions.index("mul")
    greedy = dict(zip(dataset.states, models["fqi"].policy.probabilities.argmax(axis=1), strict=True))
    guessing = [
        task
        for task in ("add", "sub", "mul")
        if not dataset.visitation_counts[dataset.state_index(f"{task}: x, y known"), greedy[f"{task}: x, y known"]]
    ]
    success = {
        d: {name: orl.evaluate(m.policy, "calculator", d).success_rate for name, m in models.items()}
        for d in (deployment, "works")
    }
    return Scene(
        mul_out=counts[mul] == 0,
        deployment=deployment,
        default_value=guess,
        success=success[deployment],
        success_if_works=success["works"],
        guessing_tasks=tuple(guessing),
        best_seen=best_seen(dataset, models["fqi"].q_values),
        times_seen_mul=int(counts[mul]),
    )


def best_seen(dataset, q_values) -> dict[str, float]:
    rows = {task: dataset.state_index(f"{task}: x, y known") for task in ("add", "sub", "mul")}
    return {task: float(max(q_values[row][dataset.visitation_counts[row] > 0])) for task, row in rows.items()}


@pytest.mark.parametrize("guess", [-2.0, -1.05, -0.95, 0.0, 0.85, 0.9, 1.0])
@pytest.mark.parametrize("deployment", ["works", "broken", "crash"])
@pytest.mark.parametrize("mul_out", [False, True])
def test_every_sentence_follows_the_numbers(dataset_with_mul, dataset_without_mul, mul_out, deployment, guess):
    here = scene(dataset_without_mul if mul_out else dataset_with_mul, deployment, guess)
    told = tell(here)
    naive, careful = here.success["fqi"], here.success["fqi_support"]
    assert f"{naive:.0%}" in told
    assert f"{careful:.0%}" in told
    assert ("end up equal" in told) <= (abs(naive - careful) <= ABOUT_EQUAL)
    assert ("Naive FQI wins" in told) <= (naive - careful > ABOUT_EQUAL)
    assert ("inside the log wins" in told) <= (careful - naive > ABOUT_EQUAL)
    behind, ahead = careful - naive > ABOUT_EQUAL, naive - careful > ABOUT_EQUAL
    led = here.success_if_works["fqi"] - here.success_if_works["fqi_support"] > ABOUT_EQUAL
    assert ("luck is gone" in told) == ("no worse" in told) == (mul_out and led and not behind and not ahead)
    assert ("pays for its guess" in told) == (mul_out and bool(here.guessing_tasks) and behind)
    assert ("costs nothing" in told) <= (not behind)
    assert ("never shows" in told) == mul_out
    assert ("a guess, not knowledge" in told) == bool(mul_out and here.guessing_tasks)
    assert ("on add and sub tasks too" in told) == (here.guessing_tasks == ("add", "sub", "mul"))
    assert ("happens to be right" in told) <= (deployment == "works" and here.guessing_tasks == ("mul",))
    assert ("garbage" in told) <= (deployment == "broken")
    assert ("changes nothing" in told) == (mul_out and not here.guessing_tasks)
    if here.guessing_tasks:
        assert here.default_value > here.best_seen["mul"]  # "which beats the best seen action"


def test_the_guess_that_the_paragraph_proposes_is_where_guessing_costs(dataset_without_mul):
    """The trap isn't the broken tool but the value that beats what the log knows; exact, just above and below the threshold."""
    told = tell(scene(dataset_without_mul, "works", 0.0))
    assert "Try the guess at 0.90:** above +0.859" in told
    assert "Try the guess" not in tell(scene(dataset_without_mul, "works", 0.9))
    for guess, works, broken in ((0.858, 1, 2 / 3), (0.860, 2 / 3, 1 / 3), (0.870, 2 / 3, 1 / 3), (0.872, 82 / 243, 0)):
        for deployment, expected in (("works", works), ("broken", broken), ("crash", broken)):
            here = scene(dataset_without_mul, deployment, guess)
            assert here.success["fqi"] == pytest.approx(expected, abs=1e-12)
            assert here.success["fqi_support"] == pytest.approx(2 / 3, abs=1e-12)


def test_a_bar_that_a_changed_world_moves_is_not_blamed_on_the_state():
    told = about_bars(["mul"], "mul crashes")
    assert "`mul` misses its green mark because the world changed after the log was written: here mul crashes" in told
    assert "Where another one does, the state hides something" in told
    assert "world changed" not in about_bars([], "mul crashes")


def test_the_accident_behind_the_smallest_bars_is_the_only_one():
    tools = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}
    pairs = [(x, y) for x in range(1, 10) for y in range(1, 10)]
    by_accident = {
        (task, tool): [pair for pair in pairs if tools[task](*pair) == tools[tool](*pair)]
        for task in tools
        for tool in tools
        if task != tool
    }
    assert {names: where for names, where in by_accident.items() if where} == {
        ("add", "mul"): [(2, 2)],
        ("mul", "add"): [(2, 2)],
    }
    assert 1 / len(pairs) == BY_ACCIDENT
    assert "2 + 2 = 2 × 2" in about_small_bars({"BC": {"add": 1.0, "mul": BY_ACCIDENT / 2}})
    assert not about_small_bars({"BC": {"add": 1.0, "mul": 0.0}, "other": {"mul": 0.3}})
