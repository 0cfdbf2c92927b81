"""A worker: one outcome for each task, errors in the library's words, and an end when its input ends."""

import io
import json
import os
import subprocess
import sys
import threading
import time

from tests.exploring.served import ENVIRONMENT, RUN

from filet.exploring import tasks
from filet.exploring.worker import Worker


def answered(*questions):
    source = io.StringIO("".join(json.dumps(question) + "\n" for question in questions))
    sink = io.StringIO()
    Worker(source, sink).run()
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def test_each_task_has_one_outcome():
    found = answered(*({"id": i, "task": "epsilon", "arguments": [RUN]} for i in (1, 2)))
    assert [one["id"] for one in found] == [1, 2]
    assert found[0]["answer"] == found[1]["answer"] == tasks.epsilon(RUN)


def test_errors_are_the_librarys_words_and_kinds():
    bad = {"id": 1, "task": "epsilon", "arguments": [{**RUN, "max_batch_size": 0}]}
    impossible = {
        "id": 2,
        "task": "calibrated",
        "arguments": [{**RUN, "noise_multiplier": None, "epsilon": 1.0, "analysis": "union"}],
    }
    first, second = answered(bad, impossible)
    assert first["kind"] == "invalid"
    assert first["error"].startswith("max_batch_size=0 is below 1")
    assert second["kind"] == "unanswered"
    assert "\n" not in second["error"]


def test_a_bug_is_an_outcome_too(capsys):
    [found] = answered({"id": 1, "task": "epsilon", "arguments": []})
    assert found["kind"] == "failed"
    assert "TypeError" in capsys.readouterr().err


def test_progress_comes_before_the_answer():
    plan = {key: RUN[key] for key in ("dataset_size", "max_batch_size", "steps", "delta", "adjacency")}
    found = answered({"id": 1, "task": "planned", "arguments": [{**plan, "epsilon": 3.0}]})
    assert found[0]["share"] == 0.0
    assert "answer" in found[-1]
    assert len(found) == 7  # five strategies, the end and the answer


def test_a_task_that_is_given_up_stops_at_its_next_report(monkeypatch):
    reading, writing = os.pipe()
    begun = threading.Event()

    def endless(progress):
        for step in range(10_000):
            begun.set()
            progress(step / 10_000, "still here")
            time.sleep(0.005)

    monkeypatch.setitem(tasks.TASKS, "planned", endless)
    sink = io.StringIO()
    with os.fdopen(reading) as source, os.fdopen(writing, "w", buffering=1) as pipe:
        working = threading.Thread(target=Worker(source, sink).run)
        working.start()
        pipe.write('{"id": 5, "task": "planned", "arguments": []}\n')
        assert begun.wait(10)
        pipe.write('{"cancel": 5}\n')
        pipe.close()
        working.join(10)
    assert not working.is_alive()
    assert json.loads(sink.getvalue().splitlines()[-1]) == {"id": 5, "error": "given up", "kind": "cancelled"}


def test_the_process_ends_with_its_input_even_while_it_computes():
    command = [sys.executable, "-m", "filet.exploring.worker"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=ENVIRONMENT)
    assert process.stdin is not None
    plan = {key: RUN[key] for key in ("dataset_size", "steps", "delta", "adjacency")}
    long = {**plan, "epsilon": 3.0, "max_batch_size": list(range(200, 400))}
    process.stdin.write(json.dumps({"id": 1, "task": "planned", "arguments": [long]}) + "\n")
    process.stdin.close()
    assert process.wait(20) == 0
