"""`python -m headrace` is the program `headrace`."""

import sys

from headrace.cli.main import main

sys.exit(main())
