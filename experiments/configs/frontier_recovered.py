"""The recovered-source check of the frontier: RECOMP and LLMLingua-2 at budget 0.25, on both data sets."""

from experiments.published_frontier import recovered_check

POINTS = recovered_check()
