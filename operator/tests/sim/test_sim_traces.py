"""Readers of traces: every format, and errors that name file, line and field."""

import gzip
import json

import pytest
from steelyard.sim import servegen, synthetic, trace
from steelyard.sim.requests import Arrival
from steelyard.sim.trace import BadTrace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:14.9799600,0,0
"""


def written(folder, name, text):
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["azure.csv", "azure.csv.gz"])
def test_azure_times_begin_at_zero_and_nothing_is_empty(tmp_path, name):
    found = list(trace.read(written(tmp_path, name, AZURE)))
    assert [a.at for a in found] == pytest.approx([0.0, 0.052, 11.0], abs=1e-6)
    assert [(a.prompt, a.answer) for a in found] == [(4808, 10), (3180, 8), (1, 1)]


def test_mooncake_keeps_its_blocks(tmp_path):
    rows = [
        {"timestamp": 1000, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]},
        {"timestamp": 3000, "input_length": 1030, "output_length": 7, "hash_ids": [1, 2, 9]},
    ]
    path = written(tmp_path, "m.jsonl", "\n".join(map(json.dumps, rows)))
    found = list(trace.read(path, speed=2))
    assert found[1] == Arrival(1.0, 1030, 7, 0, (1, 2, 9))
    shared = list(trace.with_shared_cache(found))
    assert [a.cached for a in shared] == [0, 1014], "two blocks are known; sixteen tokens are always computed"


def test_plain_and_spans(tmp_path):
    path = written(tmp_path, "p.csv", "at,prompt_tokens,output_tokens,cached_tokens\n0,10,2,5\n1.5,20,3,\n9,30,4,1\n")
    assert list(trace.read(path, start=1, end=9, speed=0.5)) == [Arrival(1.0, 20, 3)]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "x,y\n1,2\n", "line 1 is 'x,y"),
        ("a.csv", AZURE.replace("3180", "many"), "line 3: ContextTokens is 'many'; expected a number"),
        ("a.csv", AZURE.replace("2023-11-16 18:17:04.0319600", "yesterday"), "line 3: TIMESTAMP is 'yesterday'"),
        ("a.csv", AZURE.replace("18:17:14", "18:16:14"), "line 4 is 49.052 s before the line above it; sort the trace"),
        ("m.jsonl", '{"timestamp": 0, "input_length": 3}\n', "line 1: output_length is None; expected a number"),
        ("m.jsonl", '{"timestamp": 0, "input_length": 1.5, "output_length": 1}\n', "a whole number of tokens"),
        ("m.jsonl", '{"timestamp": 0, "input_length": 1, "output_length": 1}\nnonsense\n', "line 2 is not JSON"),
    ],
)
def test_errors_say_where_and_what(tmp_path, name, text, words):
    with pytest.raises(BadTrace) as failure:
        list(trace.read(written(tmp_path, name, text)))
    assert words in str(failure.value)
    assert name in str(failure.value)


def test_a_missing_file_and_an_impossible_speed_are_told(tmp_path):
    with pytest.raises(BadTrace, match="No such file"):
        list(trace.read(tmp_path / "none.csv"))
    with pytest.raises(BadTrace, match="speed is 0"):
        list(trace.read(written(tmp_path, "a.csv", AZURE), speed=0))


def test_rates_are_followed(tmp_path):
    path = written(tmp_path, "r.csv", "t_s,rps\n0,5\n100,20\n200,20\n")
    arrivals = list(synthetic.following(trace.rates(path), [(100, 10)], cv=1.0, seed=3))
    early, late = sum(a.at < 100 for a in arrivals), sum(a.at >= 100 for a in arrivals)
    assert 350 < early < 650
    assert 1700 < late < 2300
    with pytest.raises(BadTrace, match="t_s and rps"):
        trace.rates(written(tmp_path, "bad.csv", "a,b\n1,2\n"))


def test_servegen_clients_are_merged_in_order(tmp_path):
    for client, rate in ((0, 2.0), (1, 3.0)):
        rows = "".join(f"{t},{rate},1.0,Gamma,0,0\n" for t in range(0, 3000, 600))
        written(tmp_path, f"chunk-{client}-trace.csv", rows)
        tables = {"input_tokens": "{100: 1.0}", "output_tokens": "{7: 0.5, 9: 0.5}"}
        written(tmp_path, f"chunk-{client}-dataset.json", json.dumps({"0": tables, "600": {"input_tokens": "{}"}}))
    found = list(servegen.read(tmp_path, start=600, end=1800))
    assert [a.at for a in found] == sorted(a.at for a in found)
    assert 5000 < len(found) < 7000
    assert {a.prompt for a in found} == {100}
    assert {a.answer for a in found} == {7, 9}
    with pytest.raises(BadTrace, match="no chunk"):
        list(servegen.read(tmp_path / "nowhere", start=0, end=1))


def test_made_up_loads_have_their_means():
    load = synthetic.Load(rate=20, prompt=400, answer=50)
    found = list(synthetic.steady(load, 300, seed=1))
    assert len(found) == pytest.approx(6000, rel=0.1)
    assert sum(a.prompt for a in found) / len(found) == pytest.approx(400, rel=0.1)
    wave = list(synthetic.sinusoid(load, 200, period=200, depth=1.0, seed=1))
    assert sum(a.at < 100 for a in wave) > 2 * sum(a.at >= 100 for a in wave)
    turns = list(synthetic.alternating(load, synthetic.Load(rate=5, prompt=4000, answer=5), 50, 150, seed=1))
    assert sum(a.prompt > 1000 for a in turns if 50 <= a.at < 100) > 100
    assert max(a.at for a in turns) < 150


@pytest.mark.parametrize(("field", "value"), [("rate", 0), ("prompt", -1), ("cv", 0), ("spread", -0.1)])
def test_impossible_loads_are_refused(field, value):
    with pytest.raises(ValueError, match=field):
        synthetic.Load(**{"rate": 1.0, "prompt": 10.0, "answer": 10.0, field: value})
