"""What goes in and out, for the checks on requests and for the OpenAPI document.

Answers are written from the dataclasses of `service.facade` without passing through these models, whose fields
are taken from there; what differs is that JSON has lists, and null for a number that is not finite. Routes name them
all as `s.Job`, `s.Limit` and so on.
"""

from cotenant.api.schemas.answers import *  # noqa: F403
from cotenant.api.schemas.asked import *  # noqa: F403
from cotenant.api.schemas.parameters import *  # noqa: F403
from cotenant.api.schemas.pictured import *  # noqa: F403
from cotenant.api.schemas.shown import *  # noqa: F403
