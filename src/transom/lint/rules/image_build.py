"""Images of another build of Windows than the node's."""

from __future__ import annotations

from transom.lint.rules.base import Rule, of_pods
from transom.windows.podchecks import image_build

RULE = Rule("image-build", of_pods(image_build))
