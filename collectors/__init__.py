"""Where traces come from: readers of dump files, and the accounting of what they gave.

This package enters other people's trainers, so importing it loads numpy and the standard
library, and nothing else.
"""

from paritas.collectors.accounting import Accounting, RoleAccount

__all__ = ["Accounting", "RoleAccount"]
