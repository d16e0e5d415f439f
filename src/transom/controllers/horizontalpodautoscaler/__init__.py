"""The horizontal pod autoscaler: scales replicas by metrics.

- `metrics.py`: reads the three metrics APIs
- `calculator.py`: computes replicas from pod metrics
- `sources.py`: each metric type of an autoscaler, with its status
- `limits.py`: stabilization and the rate of change
- `conditions.py`: the conditions of an autoscaler
- `controller.py`: the control loop
"""

from transom.controllers.horizontalpodautoscaler.controller import Autoscaler

__all__ = ["Autoscaler"]
