"""Asks a running vLLM for its answers to all probes and prints them as JSON lines:

    run_vllm_cpu.sh PEERS python 8000 --enable-auto-tool-choice --tool-call-parser hermes
    python -m tests.parity.record_field_probes 127.0.0.1:8000 > tests/golden/field_probes.jsonl
"""

from __future__ import annotations

import http.client
import json
import sys

from tests.parity.field_probes import ask, probes


def main(address: str) -> None:
    """One line a probe: its name and what is not null of the answer."""
    connection = http.client.HTTPConnection(address, timeout=120)
    for probe in probes():
        answer = ask(connection, probe)
        told = {name: value for name, value in answer._asdict().items() if value is not None}
        sys.stdout.write(json.dumps({"probe": probe.name, **told}, ensure_ascii=False) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
