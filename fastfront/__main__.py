"""`python -m fastfront` is the `fastfront` command."""

import sys

from fastfront.cli.main import main

sys.exit(main())
