"""Labels, annotations, ports and field managers: every name that two parts of Steelyard must spell alike.

Standard library only, so that the gateway and the operator can both import it.
"""

GROUP = "serving.steelyard.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "steelyard"
COMPONENT = "app.kubernetes.io/component"  # engine | engine-follower | gateway | quantize
FOLLOWER = "engine-follower"  # a further pod of a replica that spans nodes
QUANTIZE = "quantize"  # a Job that quantizes weights, its pods, and their container

SERVICE = f"{GROUP}/service"  # name of the InferenceService that owns the object
POOL = f"{GROUP}/pool"  # where a pod was born; the Deployment's selector; never changes
ROLE = f"{GROUP}/role"  # what a pod does now: prefill | decode | aggregated; the gateway routes by it
KV_GROUP = f"{GROUP}/kv-group"  # pods with equal values can exchange KV and roles
REVISION = f"{GROUP}/revision"

SPEC_HASH = f"{GROUP}/spec-hash"  # annotation on children
PAUSED = f"{GROUP}/paused"  # annotation on the InferenceService: the operator changes nothing while "true"
ADMISSION = f"{GROUP}/decode-slots"  # annotation on gateways' pods: what the autoscaler told them last
METRICS_PATH = f"{GROUP}/metrics-path"  # annotation on engines' pods: where Prometheus' text is, if not at /metrics
RENDER = f"{GROUP}/render"  # annotation on the InferenceService: a new value renders its children anew

PREFILL, DECODE, AGGREGATED = "prefill", "decode", "aggregated"

ENGINE_PORT = 8000  # OpenAI API, health and metrics of an engine
KV_PORT = 5600  # KV side channel between engines
EVENTS_PORT = 5557  # what blocks an engine holds, for routers of the user's own
GATEWAY_PORT = 8000  # the service's API
GATEWAY_METRICS_PORT = 9090  # metrics, readiness and demand of a gateway

SIMULATED_RESOURCE = "steelyard.dev/simulated-accelerator"

FIELD_MANAGER = "steelyard"  # children; never `replicas`
SCALER_MANAGER = "steelyard-scaler"  # `/scale` of the Deployments, and the autoscaler's part of a service's status
