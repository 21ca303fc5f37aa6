"""W5 and W6 in NumPy."""

from __future__ import annotations

import json

from toys import UNITS, numpy_fald, numpy_qlsd, timed

if __name__ == "__main__":
    print(json.dumps({"W5": timed(numpy_qlsd, 200, 1.0, 0), "W6": timed(numpy_fald, 100, UNITS["W6"], 0)}))
