"""Beam jobs that go wrong: attempts that fail, workers and whole jobs that are killed. The same bytes, or nothing to read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker import data_plane
from tests.integrations.beam_jobs import (
    SCHEME,
    TWO_WORKERS,
    contents,
    created,
    examples,
    from_parquet,
    secret,
    write_job,
    write_parquet,
)

import filet
from filet.integrations.batch_files import open_batches, storage, writing

RETRIES = ("--runner=BundleBasedDirectRunner",)  # this one attempts a bundle four times
MANY = {"steps": 400, "steps_per_file": 1}  # many files, so that there is a middle to be killed in


def undisturbed(tmp_path, **more):
    write_job(created(examples()), tmp_path / "undisturbed", secret(tmp_path), **more)
    return contents(tmp_path / "undisturbed")


class FailsFirst(beam.DoFn):
    """Passes examples on, but fails at the end of the first attempt of a bundle, when it has passed some on already."""

    failures = 0

    def process(self, element):
        yield element

    def finish_bundle(self):
        if FailsFirst.failures < 2:
            FailsFirst.failures += 1
            raise RuntimeError("the first attempt")


class Failing(beam.PTransform):
    def expand(self, begin):
        return begin.pipeline | beam.Create(examples()) | beam.ParDo(FailsFirst())


def test_a_bundle_that_fails_at_first_changes_nothing(tmp_path):
    FailsFirst.failures = 0
    write_job(Failing(), tmp_path / "out", secret(tmp_path), RETRIES)
    assert FailsFirst.failures == 2
    assert contents(tmp_path / "out") == undisturbed(tmp_path)


def test_an_attempt_that_fails_while_it_writes_changes_nothing(tmp_path, monkeypatch):
    """The first attempts of three files die with half a file under another name, which nobody takes away."""
    whole, failed = storage.write_whole, set()

    def dies_at_first(folder, name, data):
        if name not in failed and len(failed) < 3:  # a bundle has four attempts
            failed.add(name)
            Path(folder).mkdir(exist_ok=True)
            Path(folder, f".{name}.0123456789ab.arrow").write_bytes(bytes(data)[: len(data) // 2])
            raise OSError("the disk went away")
        whole(folder, name, data)

    monkeypatch.setattr(writing, "write_whole", dies_at_first)
    write_job(created(examples()), tmp_path / "out", secret(tmp_path), RETRIES)
    monkeypatch.undo()
    assert len(failed) == 3
    assert contents(tmp_path / "out") == undisturbed(tmp_path)


def children(parent):
    """Processes that a process has started, and theirs."""
    direct = Path(f"/proc/{parent}/task/{parent}/children")
    tasks = [path.read_text() for path in Path(f"/proc/{parent}/task").glob("*/children")] if direct.exists() else []
    found = [int(one) for text in tasks for one in text.split()]
    return found + [later for one in found for later in children(one)]


def command_of(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def kill_a_worker(folder, killed):
    """Wait for the third file, then kill one worker process."""
    for _ in range(3000):
        if folder.exists() and len(list(folder.glob("batches-*"))) >= 3:
            workers = [one for one in children(os.getpid()) if b"sdk_worker_main" in command_of(one)]
            killed.append(len(list(folder.glob("batches-*"))))
            os.kill(workers[-1], signal.SIGKILL)
            return
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of Beam's own threads
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds worker processes by /proc")
def test_a_worker_that_is_killed_part_way(tmp_path):
    """The job fails, nobody reads what is there, and the same job over it gives the bytes of an undisturbed one."""
    killed = []
    watcher = threading.Thread(target=kill_a_worker, args=(tmp_path / "out", killed))
    watcher.start()
    with pytest.raises(filet.FiletError):
        write_job(created(examples()), tmp_path / "out", secret(tmp_path), TWO_WORKERS, **MANY)
    watcher.join()
    assert killed
    assert killed[0] < 400
    with pytest.raises(filet.StateError, match=r"manifest\.json"):
        open_batches(tmp_path / "out")
    write_job(created(examples()), tmp_path / "out", secret(tmp_path), TWO_WORKERS, **MANY)
    assert contents(tmp_path / "out") == undisturbed(tmp_path, **MANY)


def test_a_job_that_is_killed_and_run_again_over_its_own_output(tmp_path):
    key, data, output = secret(tmp_path), write_parquet(tmp_path / "in", 2), tmp_path / "out"
    code = f"""
        from pathlib import Path
        from tests.integrations.beam_jobs import from_parquet, secret, write_job
        folder = Path({str(tmp_path)!r})
        write_job(from_parquet(folder / "in"), folder / "out", secret(folder), steps=400, steps_per_file=1)
    """
    for files in (2, 150):
        root = Path(__file__).resolve().parents[3]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
        with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=environment) as job:
            while job.poll() is None and not (output.exists() and len(list(output.glob("batches-*"))) >= files):
                time.sleep(0.005)
            os.kill(job.pid, signal.SIGKILL)
        assert job.returncode == -signal.SIGKILL
        with pytest.raises(filet.StateError, match=r"manifest\.json"):
            open_batches(output)
    (output / ".batches-00007-of-00400.arrow.0123456789ab.arrow").write_bytes(b"half a file")
    write_job(from_parquet(data), output, key, **MANY)
    assert contents(output) == undisturbed(tmp_path, **MANY)
    assert len(open_batches(output)) == 400


def test_a_finished_run_over_a_finished_run_is_the_same(tmp_path):
    write_job(created(examples()), tmp_path / "out", secret(tmp_path))
    before = contents(tmp_path / "out")
    write_job(created(examples()), tmp_path / "out", secret(tmp_path))
    assert contents(tmp_path / "out") == before


def test_a_run_that_replaces_another_is_never_mixed_with_it(tmp_path, monkeypatch):
    """Killed between two files, the old manifest stands beside new files: they are refused, not read."""
    write_job(created(examples()), tmp_path / "out", secret(tmp_path), secure=False)
    whole, written = storage.write_whole, []

    def dies_at_third(folder, name, data):
        if len(written) == 2:
            raise OSError("killed")
        written.append(name)
        whole(folder, name, data)

    monkeypatch.setattr(writing, "write_whole", dies_at_third)
    with pytest.raises(filet.OutputError, match="the job failed: killed"):
        write_job(created(examples()), tmp_path / "out", secret(tmp_path), scheme=SCHEME)
    with pytest.raises(filet.StateError, match="batches-0000"):
        list(open_batches(tmp_path / "out"))


def test_the_local_runner_drops_what_is_written_while_it_flushes():
    """Once Beam has mended this, `_whole_messages` of filet.integrations.beam can go."""
    sent = []

    def flush(data):
        sent.append(data)
        if len(sent) == 1:
            stream.write(b"late")  # as the thread that fills the stream would, behind the copy and before the clearing

    stream = data_plane.TimeBasedBufferingClosableOutputStream(sent.append, flush, time_flush_threshold_ms=10**6)
    stream.write(b"early")
    stream.flush()
    stream.close()
    assert b"".join(sent) == b"early"


def test_a_job_sends_whole_messages(tmp_path, monkeypatch):
    limits, made = [], data_plane.BeamFnDataServicer.__init__

    def spy(self, limit=0):
        limits.append(limit)
        made(self, limit)

    monkeypatch.setattr(data_plane.BeamFnDataServicer, "__init__", spy)
    usual = worker_handlers.DATA_BUFFER_TIME_LIMIT_MS
    expected = undisturbed(tmp_path)
    write_job(created(examples()), tmp_path / "two", secret(tmp_path), options=TWO_WORKERS)
    assert contents(tmp_path / "two") == expected
    assert limits == [0]
    assert worker_handlers.DATA_BUFFER_TIME_LIMIT_MS == usual > 0
