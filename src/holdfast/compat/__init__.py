"""The names of torch's launcher and elastic agents, in modules that are called as torch's are.

Below this package is what torch has below ``torch.distributed``: ``from holdfast.compat.elastic.agent.server import
WorkerSpec`` has the line of a program written for torch, and holdfast's class. `holdfast.compat.homes` is the table.
``holdfast exec`` puts the same modules in the place of torch's.
"""

from holdfast.compat.mirror import Mirror

Mirror(__name__).install()
