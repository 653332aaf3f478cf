"""Files of agents to steps: recognise a format by its content, read it, report what could not be read.

``IMPORTERS`` is the registry: a new format is a module with ``sniff``, ``read``, ``EXAMPLE``, and one entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from offrl_core.errors import TraceFormatError, UnknownName
from offrl_core.importers import (
    adk,
    agent_lightning,
    anthropic_messages,
    arrays,
    atif,
    bandit,
    claude_code,
    codex,
    gemini_cli,
    inspect_ai,
    langchain_events,
    langchain_messages,
    langfuse,
    langsmith,
    lerobot,
    mlflow,
    openai_agents,
    openai_chat,
    openclaw,
    openhands,
    otlp,
    react_text,
    sharegpt,
    step_table,
    swe_agent,
    tau2,
    toolbench,
    trace_schema,
    webarena,
    webshop,
    who_and_when,
)
from offrl_core.importers.containers import Limits, plain_files
from offrl_core.importers.engine import Imported, read_files
from offrl_core.importers.raw_text import FileText
from offrl_core.importers.recognition import ImporterSpec, Source
from offrl_core.importers.records import Progress
from offrl_core.importers.report import ImportReport, Problem
from offrl_core.importers.step_mapping import StepMapping

__all__ = [
    "IMPORTERS",
    "ImportReport",
    "Imported",
    "ImporterSpec",
    "Problem",
    "first_values",
    "read_source",
    "read_sources",
]

IMPORTERS: dict[str, ImporterSpec] = {
    "trace_schema": ImporterSpec(
        name="trace_schema",
        title="Trace schema (one step per record)",
        unit="row",
        sniff=trace_schema.sniff,
        read=trace_schema.read,
        example=trace_schema.EXAMPLE,
        example_name="trace_schema_example.jsonl",
        by_columns=True,
    ),
    "openai_chat": ImporterSpec(
        name="openai_chat",
        title="OpenAI chat messages (calls in fields or as text) and tau-bench results",
        unit="conversation",
        sniff=openai_chat.sniff,
        read=openai_chat.read,
        example=openai_chat.EXAMPLE,
        example_name="openai_chat_example.jsonl",
    ),
    "tau2": ImporterSpec(
        name="tau2",
        title="tau2-bench results",
        unit="simulation",
        sniff=tau2.sniff,
        read=tau2.read,
        example=tau2.EXAMPLE,
        example_name="tau2_example.jsonl",
    ),
    "anthropic_messages": ImporterSpec(
        name="anthropic_messages",
        title="Anthropic messages and managed-agent recordings",
        unit="conversation",
        sniff=anthropic_messages.sniff,
        read=anthropic_messages.read,
        example=anthropic_messages.EXAMPLE,
        example_name="anthropic_messages_example.jsonl",
    ),
    "claude_code": ImporterSpec(
        name="claude_code",
        title="Claude Code sessions",
        unit="line",
        sniff=claude_code.sniff,
        read=claude_code.read,
        example=claude_code.EXAMPLE,
        example_name="claude_code_example.jsonl",
    ),
    "codex": ImporterSpec(
        name="codex",
        title="Codex sessions (files, and what codex exec --json prints)",
        unit="line",
        sniff=codex.sniff,
        read=codex.read,
        example=codex.EXAMPLE,
        example_name="codex_example.jsonl",
    ),
    "langchain_messages": ImporterSpec(
        name="langchain_messages",
        title="LangChain messages and LangGraph states",
        unit="conversation",
        sniff=langchain_messages.sniff,
        read=langchain_messages.read,
        example=langchain_messages.EXAMPLE,
        example_name="langchain_messages_example.jsonl",
    ),
    "adk": ImporterSpec(
        name="adk",
        title="Google ADK sessions, evalsets and their results, Gemini contents",
        unit="session",
        sniff=adk.sniff,
        read=adk.read,
        example=adk.EXAMPLE,
        example_name="adk_example.jsonl",
    ),
    "gemini_cli": ImporterSpec(
        name="gemini_cli",
        title="Gemini CLI sessions",
        unit="session",
        sniff=gemini_cli.sniff,
        read=gemini_cli.read,
        example=gemini_cli.EXAMPLE,
        example_name="gemini_cli_example.jsonl",
    ),
    "sharegpt": ImporterSpec(
        name="sharegpt",
        title="ShareGPT conversations (AgentInstruct, AgentTraj)",
        unit="conversation",
        sniff=sharegpt.sniff,
        read=sharegpt.read,
        example=sharegpt.EXAMPLE,
        example_name="sharegpt_example.jsonl",
    ),
    "arrays": ImporterSpec(
        name="arrays",
        title="Arrays of Minari, D4RL, d3rlpy and RLDS (HDF5, Arrow, TFRecord)",
        unit="episode",
        sniff=arrays.sniff,
        read=arrays.read,
        example=arrays.EXAMPLE,
        example_name="arrays_example.hdf5",
        companions=("*dataset_info.json",),
    ),
    "langfuse": ImporterSpec(
        name="langfuse",
        title="Langfuse traces",
        unit="observation",
        sniff=langfuse.sniff,
        read=langfuse.read,
        example=langfuse.EXAMPLE,
        example_name="langfuse_example.jsonl",
    ),
    "otlp": ImporterSpec(
        name="otlp",
        title="OpenTelemetry traces (GenAI, OpenInference, Phoenix, Jaeger)",
        unit="span",
        sniff=otlp.sniff,
        read=otlp.read,
        example=otlp.EXAMPLE,
        example_name="otlp_example.jsonl",
    ),
    "openai_agents": ImporterSpec(
        name="openai_agents",
        title="OpenAI Agents SDK traces",
        unit="span",
        sniff=openai_agents.sniff,
        read=openai_agents.read,
        example=openai_agents.EXAMPLE,
        example_name="openai_agents_example.jsonl",
    ),
    "langsmith": ImporterSpec(
        name="langsmith",
        title="LangSmith runs, exported or as sent in batches (LangChain, LangGraph)",
        unit="run",
        sniff=langsmith.sniff,
        read=langsmith.read,
        example=langsmith.EXAMPLE,
        example_name="langsmith_example.jsonl",
    ),
    "langchain_events": ImporterSpec(
        name="langchain_events",
        title="LangChain events (astream_events)",
        unit="event",
        sniff=langchain_events.sniff,
        read=langchain_events.read,
        example=langchain_events.EXAMPLE,
        example_name="langchain_events_example.jsonl",
    ),
    "mlflow": ImporterSpec(
        name="mlflow",
        title="MLflow traces",
        unit="trace",
        sniff=mlflow.sniff,
        read=mlflow.read,
        example=mlflow.EXAMPLE,
        example_name="mlflow_example.jsonl",
    ),
    "bandit": ImporterSpec(
        name="bandit",
        title="Logged bandit (Open Bandit CSV)",
        unit="row",
        sniff=bandit.sniff,
        read=bandit.read,
        example=bandit.EXAMPLE,
        example_name="bandit_example.jsonl",
        companions=("*item_context.csv",),
    ),
    "lerobot": ImporterSpec(
        name="lerobot",
        title="LeRobot frames (Parquet)",
        unit="frame",
        sniff=lerobot.sniff,
        read=lerobot.read,
        example=lerobot.EXAMPLE,
        example_name="lerobot_example.jsonl",
        companions=lerobot.COMPANIONS,
    ),
    "who_and_when": ImporterSpec(
        name="who_and_when",
        title="Who&When (failed runs of several agents)",
        unit="run",
        sniff=who_and_when.sniff,
        read=who_and_when.read,
        example=who_and_when.EXAMPLE,
        example_name="who_and_when_example.jsonl",
    ),
    "openclaw": ImporterSpec(
        name="openclaw",
        title="OpenClaw telemetry, and sessions of OpenClaw and Pi",
        unit="event",
        sniff=openclaw.sniff,
        read=openclaw.read,
        example=openclaw.EXAMPLE,
        example_name="openclaw_example.jsonl",
    ),
    "inspect_ai": ImporterSpec(
        name="inspect_ai",
        title="Inspect logs (JSON, .eval)",
        unit="sample",
        sniff=inspect_ai.sniff,
        read=inspect_ai.read,
        example=inspect_ai.EXAMPLE,
        example_name="inspect_ai_example.jsonl",
    ),
    "atif": ImporterSpec(
        name="atif",
        title="ATIF trajectories and Harbor trials",
        unit="trajectory",
        sniff=atif.sniff,
        read=atif.read,
        example=atif.EXAMPLE,
        example_name="atif_example.jsonl",
    ),
    "swe_agent": ImporterSpec(
        name="swe_agent",
        title="SWE-agent and mini-swe-agent trajectories",
        unit="trajectory",
        sniff=swe_agent.sniff,
        read=swe_agent.read,
        example=swe_agent.EXAMPLE,
        example_name="swe_agent_example.jsonl",
        companions=("*.json", "*.jsonl"),
    ),
    "openhands": ImporterSpec(
        name="openhands",
        title="OpenHands runs",
        unit="run",
        sniff=openhands.sniff,
        read=openhands.read,
        example=openhands.EXAMPLE,
        example_name="openhands_example.jsonl",
        companions=("*.json", "*.jsonl"),
    ),
    "toolbench": ImporterSpec(
        name="toolbench",
        title="ToolBench and ToolEval answers",
        unit="answer",
        sniff=toolbench.sniff,
        read=toolbench.read,
        example=toolbench.EXAMPLE,
        example_name="toolbench_example.jsonl",
    ),
    "webarena": ImporterSpec(
        name="webarena",
        title="WebArena runs (rendered HTML with merge_log.txt)",
        unit="run",
        sniff=webarena.sniff,
        read=webarena.read,
        example=webarena.EXAMPLE,
        example_name="webarena_example.html",
        companions=webarena.COMPANIONS,
    ),
    "react_text": ImporterSpec(
        name="react_text",
        title="ReAct, Reflexion and ALFWorld logs (text)",
        unit="text",
        sniff=react_text.sniff,
        read=react_text.read,
        example=react_text.EXAMPLE,
        example_name="react_text_example.txt",
    ),
    "webshop": ImporterSpec(
        name="webshop",
        title="WebShop human sessions",
        unit="page",
        sniff=webshop.sniff,
        read=webshop.read,
        example=webshop.EXAMPLE,
        example_name="webshop_example.jsonl",
    ),
    "agent_lightning": ImporterSpec(
        name="agent_lightning",
        title="Agent Lightning rollouts",
        unit="event",
        sniff=agent_lightning.sniff,
        read=agent_lightning.read,
        example=agent_lightning.EXAMPLE,
        example_name="agent_lightning_example.jsonl",
    ),
    "step_table": ImporterSpec(
        name="step_table",
        title="Step table of one's own (CSV, JSON, Parquet)",
        unit="row",
        sniff=step_table.sniff,
        read=step_table.read,
        example=step_table.EXAMPLE,
        example_name="step_table_example.jsonl",
    ),
}


def read_source(
    name: str,
    data: bytes,
    *,
    format: str | None = None,
    mapping: StepMapping | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Read one file of an agent's log, whatever its format; see ``read_sources``."""
    return read_sources([(name, data)], format=format, mapping=mapping, progress=progress)


def read_sources(
    files: Sequence[tuple[str, bytes | FileText]],
    *,
    format: str | None = None,
    mapping: StepMapping | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Read files of an agent's log together, whatever their formats; archives count as the files in them.

    A file that can't be read becomes a problem of the report, as long as another one can.

    Args:
        files: name and content of each, in memory or on the disk; the format is never concluded from the name.
        format: a key of ``IMPORTERS``, to override the recognition.
        mapping: which field means what; the files are then read as step tables.
        progress: called with the fraction done, 0 to 1, from the calling thread.

    Raises:
        TraceFormatError: no step can be read; the text says why and what to do. Where records were looked at,
            the attribute ``report`` of the error holds their report.
        UnknownName: there is no such format.
    """
    if format is not None and format not in IMPORTERS:
        raise UnknownName("import format", format, IMPORTERS)
    if mapping is None:
        return read_files(files, IMPORTERS, format=format, progress=progress)
    by_mapping = replace(IMPORTERS["step_table"], read=partial(step_table.read, mapping=mapping))
    return read_files(files, IMPORTERS | {"step_table": by_mapping}, format=format or "step_table", progress=progress)


def first_values(files: Sequence[tuple[str, bytes]], n: int = 200) -> list[Any]:
    """Values of the first records of files, as the recognition of formats sees them; of what can't be read, none."""
    report, values, limits = ImportReport(), [], Limits()
    for name, data in files:
        with suppress(TraceFormatError):
            for label, content in plain_files(name, data, report, limits):
                with suppress(TraceFormatError):
                    values += Source(label, content).look(report, keep=False)
        if len(values) >= n:
            break
    return values[:n]
