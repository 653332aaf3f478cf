"""The shape of the code: imports flow one way, nothing heavy is loaded early, nothing seeds globally, all is documented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = sorted((ROOT / "offrl_core").rglob("*.py"))
PAGES = sorted((ROOT / "pages").glob("*.py"))

# Lowest first. A module may import from its own layer and from those above it in this list (DESIGN, section 2).
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "arrays", "glossary", "story", "conversation", "query_child", "tokens", "wording"),
    ("temporary",),
    ("params", "schema", "database", "predicates"),
    ("framing_expressions",),
    ("framing_parts",),
    ("framing_choices",),
    ("policies", "sequence_policy", "mdp", "deadly_triad", "continuous"),
    ("behavior_policies",),
    ("worlds", "importers"),
    ("redaction",),
    ("behavior",),
    ("log",),
    ("gymnasium_logs",),
    ("edges", "joint_actions", "features"),
    ("framing",),
    ("framing_offers",),
    ("coverage_edits", "query"),
    ("reward_files", "reward_keys", "reward_columns", "reward_rules"),
    ("rewards",),
    ("recollection", "kept_rows"),
    ("dataset",),
    ("exports", "log_changes"),
    ("dataset_files", "interfaces"),
    ("history",),
    ("algorithms",),
    ("training", "evaluation"),
    ("runs",),
    ("jobs",),
    ("readiness",),
    ("figures",),
    ("__init__", "__main__"),
)
LAYER_OF = {name: i for i, layer in enumerate(LAYERS) for name in layer}

NEVER_IN_THE_CORE = {"streamlit", "pickle", "joblib", "dill", "shelve", "marshal"}
ALLOWED_IN_PAGES = {"streamlit", "pages", "offrl_core", "__future__"} | set(sys.stdlib_module_names)
TABLES_IN_PAGES = {"numpy", "pandas"}  # what the core hands over and widgets take
MAX_PAGE_LINES = 180


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, *, at_load: bool = False) -> Iterator[str]:
    """Absolute dotted names that a file imports; with ``at_load``, without those that wait inside functions.

    Imports for type checkers only count too: they bind the reader all the same.
    """
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in _nodes(tree_of(path), at_load):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # "from . import ops" imports a module, "from .ops import x" a name of one; both are kept whole.
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def _nodes(tree: ast.AST, at_load: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(tree):
        if at_load and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield child
        yield from _nodes(child, at_load)


def part_of_core(dotted: str) -> str:
    """The first name below ``offrl_core``: ``algorithms`` for ``offrl_core.algorithms.ops.key_frame``."""
    return dotted.split(".")[1] if "." in dotted else "__init__"


def in_core(path: Path) -> str:
    return part_of_core(module_name(path))


by_core_file = pytest.mark.parametrize("path", CORE, ids=module_name)
by_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)


# -- which way imports flow -----------------------------------------------------------------------------------


@by_core_file
def test_a_module_imports_from_its_layer_and_below(path: Path) -> None:
    own = in_core(path)
    assert own in LAYER_OF, f"{own} has no place in LAYERS yet; give it one"
    for dotted in imports_of(path):
        if dotted.split(".")[0] == "offrl_core":
            other = part_of_core(dotted)
            assert LAYER_OF.get(other, 99) <= LAYER_OF[own], f"{own} imports {dotted}, which stands above it"


def modules_imported_at_load(path: Path) -> set[str]:
    known = {module_name(file) for file in CORE}
    found = set()
    for dotted in imports_of(path, at_load=True):
        # A name of a module counts as the module; a package is imported on the way to what lies in it.
        candidates = (dotted, dotted.rpartition(".")[0])
        found |= {next((name for name in candidates if name in known), "")}
    return found - {"", "offrl_core", module_name(path)}


def test_no_two_modules_import_each_other() -> None:
    graph = {module_name(path): modules_imported_at_load(path) for path in CORE}
    # A registry imports its entries at its foot, and they the nouns above: the one allowed circle.
    graph["offrl_core.worlds"] = {
        name for name in graph["offrl_core.worlds"] if not name.startswith("offrl_core.worlds.")
    }
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join([*way[way.index(name) :], name])
        if name not in done:
            for following in graph[name]:
                visit(following, (*way, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@by_core_file
def test_the_core_never_imports_what_is_banned(path: Path) -> None:
    roots = {dotted.split(".")[0] for dotted in imports_of(path)}
    assert not roots & NEVER_IN_THE_CORE
    assert not roots & {"pages", "app", "tests"}
    may_use_torch = path.parent.name == "networks" or (
        path.parent.name == "algorithms" and ("neural" in path.stem or path.stem == "decision_transformer")
    )
    assert "torch" not in roots or may_use_torch
    may_draw = path.parent.name == "figures"
    assert "plotly" not in roots or may_draw


@pytest.mark.parametrize("path", [*CORE, *PAGES], ids=module_name)
def test_nothing_seeds_globally(path: Path) -> None:
    names = {ast.unparse(node) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute)}
    assert not names & {
        "random.seed",
        "torch.manual_seed",
        "torch.random.manual_seed",
        "torch.cuda.manual_seed",
    }
    legacy = {name for name in names if re.fullmatch(r"(np|numpy)\.random\.\w+", name)}
    assert legacy <= {f"np.random.{name}" for name in ("default_rng", "Generator", "SeedSequence")}


# -- pages ----------------------------------------------------------------------------------------------------


@by_page
def test_a_page_is_thin(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_PAGE_LINES
    roots = {dotted.split(".")[0] for dotted in imports_of(path)}
    assert roots <= ALLOWED_IN_PAGES | TABLES_IN_PAGES


# A number with a sign, as Python formats it; Plotly's %{x:+.2f} follows rules of its own.
FORMATTING = [*CORE, *(ROOT / "pages").rglob("*.py")]
_SIGNED = re.compile(r"(?<!%)(?<!%\{)\{[^{}]*?:\+(?!z)[,.0-9]*([fge%]\}|\{)")


@pytest.mark.parametrize("path", FORMATTING, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_signed_number_is_never_minus_zero(path: Path) -> None:
    """-0.001 to two digits reads -0.00 unless its format says z: beside +0.00 it looks like another value."""
    assert not _SIGNED.findall(path.read_text(encoding="utf-8"))
    assert f"{-0.001:+z.2f}" == "+0.00"


# -- what importing costs -------------------------------------------------------------------------------------


def loaded_after(code: str) -> set[str]:
    """Top-level modules in a fresh process after running some code."""
    report = "import sys; print(' '.join(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_the_core_is_cheap() -> None:
    loaded = loaded_after("import offrl_core")
    assert "offrl_core" in loaded
    assert not loaded & {"streamlit", "torch", "duckdb", "pandas", "plotly", "numpy", "scipy", "pyarrow"}


def test_importing_all_of_the_core_leaves_torch_and_streamlit_out() -> None:
    names = [module_name(path) for path in CORE if path.stem != "__main__" and not _needs_torch(path)]
    loaded = loaded_after("\n".join(f"import {name}" for name in names))
    assert not loaded & {"streamlit", "torch"}


def _needs_torch(path: Path) -> bool:
    return any(dotted.split(".")[0] == "torch" for dotted in imports_of(path, at_load=True))


def test_training_and_judging_a_table_leaves_torch_out() -> None:
    code = """
import offrl_core as orl
dataset = orl.frame(orl.collect("calculator", n_episodes=20))
for name, spec in orl.ALGORITHMS.items():
    if spec.instant:
        orl.evaluate(orl.train(dataset, name).policy, "calculator")
"""
    assert not loaded_after(code) & {"torch", "streamlit", "plotly"}


def test_every_public_name_is_there() -> None:
    import offrl_core

    for name in offrl_core.__all__:
        assert getattr(offrl_core, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = offrl_core.nothing


# -- documentation --------------------------------------------------------------------------------------------


def undocumented(tree: ast.AST, inside: str = "") -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            name = f"{inside}{node.name}"
            if not ast.get_docstring(node):
                yield name
            if isinstance(node, ast.ClassDef):
                yield from undocumented(node, f"{name}.")


@by_core_file
def test_everything_public_is_documented(path: Path) -> None:
    if path.read_text(encoding="utf-8").strip():
        assert ast.get_docstring(tree_of(path)), "the module itself"
    assert not list(undocumented(tree_of(path)))


def test_the_address_of_a_page_is_the_name_of_its_file() -> None:
    """On a fresh server Streamlit looks a deep link up among the files of ``pages/`` and else says "page not found"."""
    navigation = (ROOT / "pages" / "_ui" / "navigation.py").read_text(encoding="utf-8")
    addresses = dict(re.findall(r'st\.Page\("pages/(\w+)\.py".*url_path="([^"]+)"', navigation))
    assert len(addresses) >= 5
    assert all(file == address for file, address in addresses.items())
