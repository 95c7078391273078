"""From one broker to five and one taken away, under clients that must not notice."""

from __future__ import annotations

import pytest

from tests.faults.scale_out_run import ScaleOut


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_clients_do_not_notice_that_the_cluster_grows_and_shrinks() -> None:
    said: list[str] = []
    report = ScaleOut(partitions=6, seconds_between=0.5, say=said.append).run()
    assert report.errors == [], "\n".join(said)
    assert report.acknowledged > 0
    assert report.read >= report.acknowledged
