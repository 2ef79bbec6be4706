"""The entry point of the command line: ``npgm`` and ``python -m npgm``."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line, or say what it needs."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupted import ends without a traceback
    from npgm.lab.plain import accept_all_text

    accept_all_text([sys.stdout, sys.stderr])
    try:
        from npgm.lab.cli import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("npgm"):
            raise
        sys.exit(f"npgm: the command line needs the package {error.name}; install npgm[experiments]")
    from npgm.lab.terminal import complain

    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        app()
    except OSError as error:  # of the standard output, as on a full disk; what a command writes else, it reports itself
        complain(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
