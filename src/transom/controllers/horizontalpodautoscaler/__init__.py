"""The horizontal pod autoscaler: replicas that follow a metric.

- `metrics.py`: reads the three metrics APIs
- `calculator.py`: from the metrics of pods to a number of replicas
- `sources.py`: each type of metric of an autoscaler, with what its status says
- `limits.py`: stabilization and the rate of change
- `conditions.py`: what an autoscaler says of itself
- `controller.py`: the loop
"""

from transom.controllers.horizontalpodautoscaler.controller import Autoscaler

__all__ = ["Autoscaler"]
