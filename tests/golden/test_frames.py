"""Every golden frame decodes to what its file shows, and what a frontend sends encodes to the very same bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fastfront import flow
from fastfront.engine import guard, wire
from tests.golden.frames import Golden, load_all, normal, view

ADDS = load_all("*_add_*")
OUTPUTS = load_all("*_out_*")
UTILITIES = load_all("*_utility_rs*") + load_all("*_utility_py*")

#: Parameters that Python's frontend sends and the engine has no use for (wire d.2); fastfront leaves them out.
WITHOUT_EFFECT = {"stop", "bad_words", "skip_special_tokens", "include_stop_str_in_output", "ignore_eos", "detokenize"}


def named(golden: Golden) -> str:
    return golden.name


def record(data: bytes, kind: type[Any]) -> Any:
    return view(msgspec.to_builtins(wire.decode(data, kind), builtin_types=(msgspec.msgpack.Ext,)))


@pytest.mark.parametrize("golden", ADDS, ids=named)
def test_add(golden: Golden) -> None:
    kind, payload, *aux = golden.frames
    assert kind == wire.ADD
    request = wire.decode(payload, wire.EngineCoreRequest)
    assert wire.encode(request) == normal(payload)
    assert view(msgspec.msgpack.decode(wire.encode(request))) == golden.decoded[1]
    assert len(aux) == len(golden.decoded) - 2


def meaning(sampling: dict[str, Any]) -> dict[str, Any]:
    """Sampling parameters without what is as good as absent."""
    known = msgspec.convert(sampling, flow.SamplingParams, strict=False)
    shown = view(msgspec.to_builtins(known, str_keys=True))
    own = {"max_tokens": sampling.get("max_tokens", 16), "seed": sampling.get("seed")}
    return own | {key: value for key, value in shown.items() if value != [] and key not in WITHOUT_EFFECT}


@pytest.mark.parametrize("golden", [g for g in ADDS if "multimodal" not in g.name], ids=named)
def test_add_is_packed_with_the_same_meaning(golden: Golden, fast: SimpleNamespace) -> None:
    seen = wire.decode(golden.frames[1], wire.EngineCoreRequest)
    assert seen.sampling_params is not None
    names = {field.encode_name for field in msgspec.structs.fields(flow.SamplingParams)}
    assert set(seen.sampling_params) - WITHOUT_EFFECT <= names | {"max_tokens", "seed"}
    kwargs = seen.reasoning_parser_kwargs
    request = flow.EngineRequest(
        request_id=seen.request_id,
        prompt_token_ids=seen.prompt_token_ids or [],
        sampling=msgspec.convert(seen.sampling_params, flow.SamplingParams),
        max_tokens=seen.sampling_params.get("max_tokens", 16),
        seed=seen.sampling_params.get("seed"),
        arrival_time=seen.arrival_time,
        external_req_id=seen.external_req_id,
        cache_salt=seen.cache_salt,
        data_parallel_rank=seen.data_parallel_rank,
        trace_headers=seen.trace_headers,
        priority=seen.priority,
        session_id=seen.session_id,
        reasoning_ended=seen.reasoning_ended,
        reasoning_parser_kwargs=None if kwargs is None else msgspec.json.encode(kwargs),
    )
    checked = guard.Guard(vocab_size=151936).check(request, max_model_len=2048)
    assert checked.prompt == fast.pack_ids(request.prompt_token_ids, 151936)
    kind, payload = wire.add_frames(request, *checked, seen.client_index, seen.current_wave)
    assert kind == wire.ADD
    packed = wire.decode(payload, wire.EngineCoreRequest)
    assert packed.sampling_params is not None
    assert meaning(packed.sampling_params) == meaning(seen.sampling_params)
    seen.sampling_params = packed.sampling_params
    assert packed == seen


def test_abort() -> None:
    (golden,) = load_all("*_abort_*")
    assert list(wire.abort_frames(golden.decoded[1])) == golden.frames


@pytest.mark.parametrize("golden", UTILITIES, ids=named)
def test_utility(golden: Golden) -> None:
    assert list(wire.utility_frames(*golden.decoded[1])) == golden.frames
    assert view(msgspec.msgpack.decode(golden.frames[1])) == golden.decoded[1]


@pytest.mark.parametrize("golden", load_all("*_handshake_init_*"), ids=named)
def test_handshake_init(golden: Golden) -> None:
    init = wire.decode(golden.frames[0], wire.HandshakeInit)
    assert wire.encode(init) == golden.frames[0]
    assert record(golden.frames[0], wire.HandshakeInit) == golden.decoded[0]


@pytest.mark.parametrize("golden", load_all("*_handshake_hello") + load_all("*_handshake_ready"), ids=named)
def test_handshake_status(golden: Golden) -> None:
    status = wire.decode(golden.frames[0], wire.HandshakeStatus)
    assert wire.encode(status) == golden.frames[0]
    assert status.status == golden.decoded[0]["status"]
    assert (status.local, status.headless) == (False, True)


def test_registration() -> None:
    (golden,) = load_all("*_engine_ready_response")
    assert record(golden.frames[0], wire.ReadyResponse) == golden.decoded[0]


@pytest.mark.parametrize("golden", OUTPUTS + load_all("50_*"), ids=named)
def test_outputs(golden: Golden) -> None:
    outputs = wire.decode(golden.frames[0], wire.EngineCoreOutputs)
    again = wire.encode(outputs)
    shown = view(msgspec.msgpack.decode(again))
    assert shown[: len(golden.decoded[0])] == golden.decoded[0]
    if len(golden.decoded[0]) == 9:
        assert again == golden.frames[0]
    stats = golden.decoded[0][2]
    if stats is not None:
        raw = wire.encode(outputs.scheduler_stats)
        read = wire.decode(raw, wire.SchedulerStats)
        assert (read.num_running_reqs, read.kv_cache_usage) == (stats["num_running_reqs"], stats["kv_cache_usage"])


@pytest.mark.parametrize("golden", OUTPUTS, ids=named)
def test_outputs_are_walked_alike(golden: Golden, fast: SimpleNamespace) -> None:
    """What the hot path finds in a message is what the reference finds."""
    reference = wire.decode(golden.frames[0], wire.EngineCoreOutputs)
    parsed = fast.Router().feed(golden.frames[0], 1.0)
    assert parsed.error is None
    assert parsed.engine_index == reference.engine_index
    stats = None if parsed.stats is None else msgspec.msgpack.decode(parsed.stats)
    assert stats == reference.scheduler_stats
    utility = None if parsed.utility is None else wire.decode(parsed.utility, wire.UtilityOutput)
    assert utility == reference.utility_output


@pytest.mark.parametrize("golden", [g for g in OUTPUTS if "logprobs" in g.name], ids=named)
def test_arrays(golden: Golden) -> None:
    (output,) = wire.decode(golden.frames[0], wire.EngineCoreOutputs).outputs
    assert output.new_logprobs is not None
    ids, logprobs, ranks = (wire.read_array(value, golden.frames) for value in output.new_logprobs[:3])
    assert ids.values()[0] == output.new_token_ids[0]
    assert all(value <= 0 for value in logprobs.values())
    assert ranks.values()[0] >= 1
    assert ids.shape == logprobs.shape
    if output.new_prompt_logprobs_tensors is not None:
        tensors = [wire.read_array(value, golden.frames) for value in output.new_prompt_logprobs_tensors[:3]]
        assert tensors[0].dtype == "int32"
        rows, columns = tensors[0].shape
        assert [len(tensor.values()) for tensor in tensors] == [rows * columns, rows * columns, rows]


def test_sentinel() -> None:
    (golden,) = load_all("*_engine_core_dead")
    assert golden.frames == [wire.ENGINE_CORE_DEAD]
