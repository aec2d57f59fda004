from cotenant._version import __version__ as __version__
from cotenant.core.cluster import Cluster as Cluster
from cotenant.core.errors import CotenantError as CotenantError
from cotenant.core.errors import InputError as InputError
from cotenant.core.view import View as View
from cotenant.lab.results import Result as Result
from cotenant.lab.results import Results as Results
from cotenant.lab.running import compare as compare
from cotenant.lab.running import simulate as simulate
from cotenant.lab.running import why as why
from cotenant.lab.trace import Trace as Trace
from cotenant.policies.base import OrderPolicy as OrderPolicy
from cotenant.policies.base import PlanPolicy as PlanPolicy
from cotenant.policies.base import Policy as Policy
from cotenant.policies.base import PriorityPolicy as PriorityPolicy

__all__: list[str]
