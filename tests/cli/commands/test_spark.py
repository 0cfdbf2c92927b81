"""The command that runs a Spark job, where Spark or Java is missing; with both, `tests/integrations/spark/test_command.py`."""

import subprocess
import sys
import textwrap

from tests.cli.invoke import ENVIRONMENT

RUN = ["--dataset-size", 40, "--sampling-probability", 0.2, "--max-batch-size", 10, "--steps", 5]


def test_help_works_without_spark_and_says_how_to_install_it():
    code = """
        import sys
        sys.modules["pyspark"] = sys.modules["pyarrow"] = sys.modules["pandas"] = None
        from filet.cli.commands.answers import main
        main(sys.argv[1:])
    """
    command = [sys.executable, "-c", textwrap.dedent(code), "spark"]
    options = {"capture_output": True, "text": True, "timeout": 600, "env": ENVIRONMENT, "check": False}
    shown = subprocess.run([*command, "--help"], **options)
    assert shown.returncode == 0
    assert "pip install 'filet[spark]'" in shown.stdout
    refused = subprocess.run([*command, "in", "out", *map(str, RUN), "--key-file", "key"], **options)
    assert refused.returncode == 1
    assert "run: pip install 'filet[spark]'\n" in refused.stderr
    assert refused.stderr.count("\n") == 1
