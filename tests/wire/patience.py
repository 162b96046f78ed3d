"""How long the tests wait: as written for an optimised server, longer where a sanitizer slows it down."""

import os

PATIENCE = float(os.environ.get("HAYATE_TEST_PATIENCE", "1"))


def patient(seconds: float) -> float:
    return seconds * PATIENCE
