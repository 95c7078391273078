"""A whole cluster in one process under one seed: real nodes and simulated clients in a world that fails on purpose.

`moldau simulate --seed N` tells the story of one seed; `runner.run_seed` is the same for programs.
"""

from __future__ import annotations
