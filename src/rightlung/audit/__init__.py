"""Audit a model: do its maps depend on the image, or on the words alone?"""

from rightlung.audit.run import Audit, audit
from rightlung.audit.task_audit import TaskAudit, audit_tasks

__all__ = ["Audit", "TaskAudit", "audit", "audit_tasks"]
