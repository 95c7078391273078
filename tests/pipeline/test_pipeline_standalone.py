"""`moldau run` on a real Spark cluster: one master and two workers, which know nothing of the program's directory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.testing import Cluster
from tests.faults.spark_run import SparkCluster
from tests.pipeline.world import consume, produce

pytestmark = [
    pytest.mark.long,
    pytest.mark.longest,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17"),
]

APP = """
from pyspark.sql.functions import udf
from words.loud import shout

from moldau.spark.values import Json, String
from moldau.streams import Streams


def pipeline(streams: Streams) -> None:
    # A function of the program that uses a module beside it, on the workers.
    louder = udf(lambda word: shout(word), "string")
    words = streams.stream("{source}", key=String(), value=Json("word string"))
    words.with_columns(word=louder("word")).to("{target}")
"""
SQL = """
CREATE STREAM words (word STRING) WITH (topic = '{source}');
INSERT INTO TOPIC '{target}' WITH (key = 'word', mode = 'update')
SELECT upper(word) AS word, count(*) AS count FROM words GROUP BY 1;
"""
WORDS = [{"word": f"W{number % 3}"} for number in range(30)]
COUNTS = [{"word": f"W{number}", "count": 10} for number in range(3)]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cluster = SparkCluster(tmp_path_factory.mktemp("spark-cluster"))
    try:
        cluster.start()
        yield cluster.master
    finally:
        cluster.stop()


@pytest.mark.parametrize(("program", "text", "expected"), [("app.py", APP, WORDS), ("app.sql", SQL, COUNTS)])
def test_a_program_on_a_cluster(
    master: str,
    program: str,
    text: str,
    expected: list[dict[str, Any]],
    moldau_cluster: Cluster,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    bootstrap = moldau_cluster.bootstrap_servers
    source, target = new_topic(2), new_topic(2)
    produce(bootstrap, source, [(str(number), {"word": f"w{number % 3}"}) for number in range(30)])
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "__init__.py").touch()
    (tmp_path / "words" / "loud.py").write_text("def shout(word):\n    return word.upper()\n")
    (tmp_path / program).write_text(text.format(source=source, target=target))
    command = [sys.executable, "-m", "moldau", "run", str(tmp_path / program), "-b", bootstrap, "--master", master]
    options = ["--once", "--name", target, "--checkpoints", str(tmp_path / "checkpoints")]
    settings = ["--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.driver.host=127.0.0.1"]
    done = subprocess.run(
        [*command, *options, *settings], capture_output=True, text=True, cwd=tmp_path.parent, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted((value for _, value in consume(bootstrap, target)), key=str) == sorted(expected, key=str)
    assert f"Checkpoints are in {tmp_path / 'checkpoints'}" in done.stderr
