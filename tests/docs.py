"""Tables of the README made from the registries; ``make docs`` writes them, a test compares them."""

from __future__ import annotations

import re
from pathlib import Path

import offrl_core as orl
from offrl_core.params import params_of
from offrl_core.wording import plural
from offrl_core.worlds import WORLDS

README = Path(__file__).resolve().parents[1] / "README.md"


def story_table() -> str:
    """Exact success of each learner, by log and deployment."""
    deployments = WORLDS["calculator"].deployments
    columns = [(log, name) for log in ("calculator", "calculator_without_mul") for name in deployments]
    datasets = {log: orl.frame(orl.bundled_log(log)) for log in ("calculator", "calculator_without_mul")}
    heads = [
        f"{'with' if log == 'calculator' else 'without'} `mul`, {deployments[name].title}" for log, name in columns
    ]
    lines = [f"| learner | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in ("bc", "fqi", "fqi_support", "cql"):
        cells = []
        for log, deployment in columns:
            policy = orl.train(datasets[log], name).policy
            cells.append(f"{orl.evaluate(policy, 'calculator', deployment).success_rate:.3f}")
        lines.append(f"| {orl.ALGORITHMS[name].title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def learners_table() -> str:
    """Every learner with its parameters and source."""
    lines = ["| name | what it does | parameters | source |", "|---|---|---|---|"]
    for name, spec in orl.ALGORITHMS.items():
        parameters = ", ".join(f"`{parameter}`" for parameter in params_of(spec.config_class))
        lines.append(f"| `{name}` | {spec.title}. {spec.summary} | {parameters} | {spec.source} |")
    return "\n".join(lines)


def worlds_table() -> str:
    """Every world with its hidden truths, and what it needs."""
    lines = ["| name | what it is | once deployed, it… | needs |", "|---|---|---|---|"]
    for name, spec in WORLDS.items():
        deployments = "; ".join(deployment.title for deployment in spec.deployments.values())
        needs = f"`{spec.install}`" if spec.install else ""
        lines.append(f"| `{name}` | {spec.title}. {spec.summary} | {deployments} | {needs} |")
    return "\n".join(lines)


def formats_table() -> str:
    """Every trace format, and the word for its records."""
    lines = ["| name | format | is counted in |", "|---|---|---|"]
    lines += [f"| `{name}` | {spec.title} | {plural(spec.unit)} |" for name, spec in orl.IMPORTERS.items()]
    return "\n".join(lines)


TABLES = {"story": story_table, "learners": learners_table, "worlds": worlds_table, "formats": formats_table}


def with_tables(text: str) -> str:
    """The README with its tables made anew."""
    for name, make in TABLES.items():
        marked = f"<!-- {name} -->\n{make()}\n<!-- /{name} -->"
        text = re.sub(f"<!-- {name} -->.*?<!-- /{name} -->", lambda _, marked=marked: marked, text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text(encoding="utf-8")), encoding="utf-8")
