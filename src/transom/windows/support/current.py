"""What the documentation of current releases states beyond the older documents, from a table."""

from __future__ import annotations

from typing import Final

from transom.windows.tables import current_support

SUPPORT: Final = current_support()
