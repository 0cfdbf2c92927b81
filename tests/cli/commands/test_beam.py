"""The command that runs a Beam job, where Beam is not installed; with Beam, `tests/integrations/beam/test_command.py`."""

import subprocess
import sys
import textwrap

from tests.cli.invoke import ENVIRONMENT

RUN = ["--dataset-size", 40, "--sampling-probability", 0.2, "--max-batch-size", 10, "--steps", 5]


def test_help_works_without_beam_and_says_how_to_install_it():
    code = """
        import sys
        sys.modules["apache_beam"] = sys.modules["pyarrow"] = sys.modules["fastavro"] = None
        from filet.cli.commands.answers import main
        main(sys.argv[1:])
    """
    command = [sys.executable, "-c", textwrap.dedent(code), "beam"]
    options = {"capture_output": True, "text": True, "timeout": 60, "env": ENVIRONMENT, "check": False}
    shown = subprocess.run([*command, "--help"], **options)
    assert shown.returncode == 0
    assert "pip install 'filet[beam]'" in shown.stdout
    refused = subprocess.run([*command, "in", "out", *map(str, RUN), "--key-file", "key"], **options)
    assert refused.returncode == 1
    assert refused.stderr == "filet: Apache Beam is not installed; run: pip install 'filet[beam]'\n"
