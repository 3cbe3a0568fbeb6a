"""Every condition type, condition reason and event reason of Steelyard, in one place, so that each is spelt once.

People write alerts on these words: they are API. A reason says what is the case, the message says what to do.
"""

from enum import StrEnum


class ConditionType(StrEnum):
    """What a condition of an InferenceService is about."""

    ACCEPTED = "Accepted"  # the spec can be served; while False the last good children stay
    MODEL_READY = "ModelReady"  # the weights are where the engines read them
    PROGRESSING = "Progressing"  # the cluster is moving towards the spec
    AVAILABLE = "Available"  # requests are answered now
    OBJECTIVES_FEASIBLE = "ObjectivesFeasible"  # no bound of the hardware is above an objective
    OBJECTIVES_MET = "ObjectivesMet"  # attainment over the window is at or above the objective
    METRICS_FRESH = "MetricsFresh"  # what decisions need is measured, and new enough
    SCALING_ACTIVE = "ScalingActive"  # the operator writes the numbers of replicas
    SCALING_LIMITED = "ScalingLimited"  # the load needs more than the decision may give
    PAUSED = "Paused"  # the pause annotation holds everything


class Reason(StrEnum):
    """Why a condition has its status."""

    # Accepted
    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    UNKNOWN_ACCELERATOR = "UnknownAccelerator"
    ACCELERATOR_NOT_AVAILABLE = "AcceleratorNotAvailable"  # announced hardware: plans may use it, pods may not
    MODEL_SOURCE_NOT_SUPPORTED = "ModelSourceNotSupported"
    DOES_NOT_FIT = "DoesNotFit"  # weights and one sequence are more than the accelerator's memory
    FORMAT_NOT_SUPPORTED = "FormatNotSupported"  # a number format has no kernel there, or is not the checkpoint's
    PARALLELISM_INVALID = "ParallelismInvalid"
    ROLES_INCOMPATIBLE = "RolesIncompatible"  # KV cannot pass from prefill to decode
    ENGINE_SETTING_CONFLICT = "EngineSettingConflict"  # args, env or template set what a typed field owns
    SETTING_NOT_SUPPORTED = "SettingNotSupported"  # the engine, or this operator, lacks what a typed field asks for
    SPANS_NODES = "SpansNodes"  # a replica needs several nodes, and the cluster lacks the kind for that
    NAME_TAKEN = "NameTaken"  # a child's name belongs to an object of somebody else
    # ModelReady
    WEIGHTS_LOADED = "WeightsLoaded"
    WEIGHTS_LOADING = "WeightsLoading"
    WEIGHTS_UNAVAILABLE = "WeightsUnavailable"  # cannot be fetched, or the Job that quantizes them cannot start
    QUANTIZING = "Quantizing"  # a Job writes the weights in fewer bits; also of Progressing and Available
    QUANTIZE_FAILED = "QuantizeFailed"
    # Progressing
    UP_TO_DATE = "UpToDate"
    REPLICAS_STARTING = "ReplicasStarting"
    REPLICAS_DRAINING = "ReplicasDraining"
    ROLLING_OUT = "RollingOut"
    ROLLOUT_PAUSED = "RolloutPaused"  # the objectives are missed since it began
    UNSCHEDULABLE = "Unschedulable"
    PODS_REFUSED = "PodsRefused"  # by the API server: quota, pod security, a webhook
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"
    ENGINE_CRASHING = "EngineCrashing"
    OUT_OF_MEMORY = "OutOfMemory"  # the kernel killed a container at its limit; it starts again
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    INTERNAL_ERROR = "InternalError"
    # Available
    SERVING = "Serving"
    GATEWAY_NOT_READY = "GatewayNotReady"
    PREFILL_NOT_READY = "PrefillNotReady"
    DECODE_NOT_READY = "DecodeNotReady"
    AGGREGATED_NOT_READY = "AggregatedNotReady"
    # MetricsFresh
    FRESH = "Fresh"
    DEGRADED_INTERVAL = "DegradedInterval"  # scraped less often than bursts need
    PARTLY_UNKNOWN = "PartlyUnknown"  # of some replicas: nothing is taken away meanwhile
    NO_READY_REPLICAS = "NoReadyReplicas"
    PROMETHEUS_UNREACHABLE = "PrometheusUnreachable"
    NO_MATCHING_SERIES = "NoMatchingSeries"  # replicas are ready and Prometheus knows none of them
    SCRAPES_FAILING = "ScrapesFailing"
    SAMPLES_STALE = "SamplesStale"
    ENGINE_METRIC_MISSING = "EngineMetricMissing"
    # ScalingLimited
    NOT_LIMITED = "NotLimited"
    BUDGET_REACHED = "BudgetReached"
    RATIO_BOUND = "RatioBound"
    MAXIMUM_REACHED = "MaximumReached"
    COST_UNKNOWN = "CostUnknown"
    START_FAILING = "StartFailing"
    METRICS_NOT_FRESH = "MetricsNotFresh"
    # ObjectivesFeasible
    FEASIBLE = "Feasible"
    UNREACHABLE = "Unreachable"
    NOT_ENOUGH_FACTS = "NotEnoughFacts"  # of the model or the hardware
    # ObjectivesMet, ScalingActive
    ATTAINED = "Attained"
    MISSED = "Missed"
    NOT_MEASURED = "NotMeasured"
    NO_OBJECTIVES = "NoObjectives"
    MODE_AUTO = "ModeAuto"
    MODE_RECOMMEND = "ModeRecommend"
    MODE_OFF = "ModeOff"
    # Paused
    PAUSE_ANNOTATION = "PauseAnnotation"
    NOT_PAUSED = "NotPaused"
    # any type
    NOT_ACCEPTED = "NotAccepted"
    DELETING = "Deleting"


class EventReason(StrEnum):
    """Why an event was written; events tell transitions, conditions tell states."""

    ACCEPTED = "Accepted"
    REJECTED = "Rejected"
    CHILDREN_CHANGED = "ChildrenChanged"
    DRIFT_REPAIRED = "DriftRepaired"
    SCALED = "Scaled"
    SCALE_DECIDED = "ScaleDecided"
    SCALE_RECOMMENDED = "ScaleRecommended"
    REPLICA_WITHDRAWN = "ReplicaWithdrawn"
    SCALING_LIMITED = "ScalingLimited"
    METRICS_LOST = "MetricsLost"
    METRICS_BACK = "MetricsBack"
    OBJECTIVES_MISSED = "ObjectivesMissed"
    OBJECTIVES_MET = "ObjectivesMet"
    AVAILABLE = "Available"
    UNAVAILABLE = "Unavailable"
    PAUSED = "Paused"
    RESUMED = "Resumed"
    ROLLOUT_PAUSED = "RolloutPaused"
    ROLLOUT_RESUMED = "RolloutResumed"
    QUANTIZED = "Quantized"
    QUANTIZE_FAILED = "QuantizeFailed"
    RECONCILE_FAILED = "ReconcileFailed"
    OUT_OF_MEMORY = "OutOfMemory"
