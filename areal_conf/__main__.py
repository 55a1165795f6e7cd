"""``python -m areal_conf``"""

import sys

from areal_conf.cli.entry import main

sys.exit(main())
