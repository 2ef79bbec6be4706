"""Print the oldest versions that pyproject.toml admits of what the core and the extras torch and jax need.

    python tests/support/oldest.py > constraints; pip install -c constraints '.[torch,jax]'

`make test-oldest` runs the tests of these parts with them.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def main() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for requirement in [*project["dependencies"], *extras["torch"], *extras["jax"]]:
        print(re.sub(r">=", "==", requirement))


if __name__ == "__main__":
    main()
