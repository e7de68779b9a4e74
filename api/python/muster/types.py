"""The documents of Muster's REST surface. Every field may be missing.

Written by `make openapi` from api/openapi.yaml.
"""
from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict, Union

from .node_types import Node as Node
from .spec_types import Spec as Spec

State = Literal['queued', 'starting', 'running', 'rescaling', 'suspended', 'recovering', 'succeeded', 'failed',
        'cancelled']
Labels = Dict[str, str]
StartBasis = Literal['unknown', 'work-left', 'time-limits', 'next-round', 'calendar', 'reserved']
NoticeType = Literal['job.started', 'job.succeeded', 'job.failed', 'job.cancelled', 'job.recovering',
        'job.suspended', 'job.hung', 'job.slow', 'device.slow', 'node.lost', 'node.quarantined', 'node.repair',
        'gpu.ill']
ProjectRole = Literal['member', 'manager']


class Outlook(TypedDict, total=False):
    job: str
    runs: bool
    devices: int
    classes: List[str]
    starts: Union[str, None]
    ends: Union[str, None]
    basis: Literal['round', 'unknown', 'work-left', 'time-limits', 'next-round', 'calendar', 'reserved']
    after: Union[str, None]


class StepParts(TypedDict, total=False):
    step_ms: Union[float, None]
    compute_ms: Union[float, None]
    tp_ms: Union[float, None]
    pp_ms: Union[float, None]
    dp_ms: Union[float, None]
    cp_ms: Union[float, None]
    other_ms: Union[float, None]
    data_ms: Union[float, None]
    save_ms: Union[float, None]
    rest_ms: Union[float, None]
    sent_kib: Union[float, None]


ClusterSeries = TypedDict('ClusterSeries', {
    'from': 'int',
    'to': 'int',
    'width_s': 'int',
    'nodes': 'List[ClusterSeriesNodesItem]',
    'next_cursor': 'Union[str, None]',
}, total=False)


class ClusterSeriesNodesItem(TypedDict, total=False):
    node: str
    host: Dict[str, ClusterSeriesNodesItemHostValue]
    devices: List[ClusterSeriesNodesItemDevicesItem]


class ClusterSeriesNodesItemHostValue(TypedDict, total=False):
    mean: List[Union[float, None]]
    most: List[Union[float, None]]


class ClusterSeriesNodesItemDevicesItem(TypedDict, total=False):
    slot: int
    busy: List[Union[float, None]]
    use: List[Union[float, None]]
    memory: List[Union[float, None]]
    temperature_c: List[Union[float, None]]
    power_w: List[Union[float, None]]
    runs: List[ClusterSeriesNodesItemDevicesItemRunsItem]


ClusterSeriesNodesItemDevicesItemRunsItem = TypedDict('ClusterSeriesNodesItemDevicesItemRunsItem', {
    'job': 'str',
    'from': 'int',
    'to': 'int',
}, total=False)


class AgentIncident(TypedDict, total=False):
    version: int
    job: str
    generation: int
    number: Union[int, None]
    kind: Union[Literal['hang', 'failure', 'look'], None]
    at_ms: Union[int, None]
    layout: Union[AgentLayout, None]
    verdict: Union[AgentIncidentVerdict, None]
    ranks: Union[List[AgentIncidentRank], None]
    parts: Union[List[Any], None]


class AgentLayout(TypedDict, total=False):
    tp: Union[int, None]
    pp: Union[int, None]
    cp: Union[int, None]
    dp: Union[int, None]


AgentIncidentVerdict = TypedDict('AgentIncidentVerdict', {
    'class': 'Union[str, None]',
    'text': 'Union[str, None]',
    'roots': 'Union[List[int], None]',
    'waiting': 'Union[int, None]',
    'waiter': 'Union[int, None]',
}, total=False)


class AgentIncidentRank(TypedDict, total=False):
    node: Union[str, None]
    told: AgentReportRank


class AgentReportRank(TypedDict, total=False):
    rank: int
    slot: Union[int, None]
    state: Union[Literal['starting', 'running', 'exited'], None]
    pid: Union[int, None]
    step: Union[int, None]
    phase: Union[str, None]
    idle_us: Union[int, None]
    gap_us: Union[int, None]
    usual_us: Union[int, None]
    allowed_us: Union[int, None]
    role: Union[int, None]
    span: Union[int, None]
    span_ops: Union[int, None]
    before: Union[int, None]
    before_ops: Union[int, None]
    odd: Union[int, None]
    window: Union[str, None]
    stopped: Union[bool, None]
    frozen: Union[bool, None]
    op: Union[str, None]
    op_key: Union[int, None]
    op_call: Union[int, None]
    op_peer: Union[int, None]
    beats: Union[bool, None]
    section: Union[str, None]
    groups: Union[List[AgentReportGroup], None]
    steps: Union[List[int], None]
    ack: Union[int, None]
    ack_step: Union[int, None]
    ack_did: Union[Literal['saved', 'stopping', 'refused'], None]
    exit_code: Union[int, None]
    signal: Union[int, None]
    why: Union[str, None]
    lost: Union[int, None]
    cause: Union[Literal['program', 'done', 'drained', 'user', 'internal', 'node', 'aborted', 'out-of-memory',
            'numbers', 'replica'], None]
    at_ms: Union[int, None]
    log_tail: Union[List[Any], None]


class AgentReportGroup(TypedDict, total=False):
    name: Union[str, None]
    key: int
    entered: int
    left: int
    size: Union[int, None]
    digest: Union[int, None]


class Start(TypedDict, total=False):
    at: Union[str, None]
    basis: StartBasis
    latest: Union[str, None]
    after: Union[str, None]


Usage = TypedDict('Usage', {
    'from': 'str',
    'user': 'str',
    'project': 'str',
    'class': 'Union[str, None]',
    'device_hours': 'float',
    'device_hours_by_end': 'UsageByEnd',
    'jobs_by_end': 'UsageByEnd',
    'wait_hours': 'float',
    'energy_kwh': 'float',
    'energy_measured': 'float',
}, total=False)


class UsageByEnd(TypedDict, total=False):
    succeeded: float
    cancelled: float
    paused: float
    failed_user: float
    failed_system: float
    failed_node: float
    running: float


class Job(TypedDict, total=False):
    id: str
    name: str
    project: str
    kind: Literal['train', 'command']
    user: str
    state: State
    priority: int
    labels: Labels
    limits: JobLimits
    ends_by: Union[str, None]
    queue: JobQueue
    starts: Start
    energy: JobEnergy
    finish: JobFinish
    estimate: JobEstimate
    log_bytes: int
    ports: Dict[str, int]
    measured: Union[float, None]
    generation: int
    reason: JobReason
    submitted_at: str
    started_at: Union[str, None]
    finished_at: Union[str, None]
    devices: JobDevices
    layout: Union[Layout, None]
    plan: Union[Plan, None]
    assignment: List[JobAssignmentItem]
    progress: JobProgress
    eval: JobEval
    checkpoint: Union[Checkpoint, None]
    config: Union[Dict[str, Any], None]
    summary: Union[Dict[str, Any], None]
    restarts: JobRestarts
    dir: str
    outcome: Union[Outcome, None]
    array: JobArray
    task: JobTask
    slow: List[JobSlowItem]
    spec: Spec


class JobLimits(TypedDict, total=False):
    time_s: int
    queue_s: int
    warn_s: int


class JobQueue(TypedDict, total=False):
    ahead: int
    ahead_devices: int
    of_project: int


class JobEnergy(TypedDict, total=False):
    kwh: float
    measured: float
    basis: Literal['measured', 'measured-and-class-power', 'class-power']


class JobFinish(TypedDict, total=False):
    by: str
    verdict: Literal['will', 'likely', 'unlikely', 'cannot', 'unknown']
    text: str
    needs_s: Union[int, None]
    needs_basis: Literal['time-limit', 'work-left', 'unknown']
    devices: int
    starts_at: Union[str, None]
    starts_basis: str
    ends_at: Union[str, None]


class JobEstimate(TypedDict, total=False):
    made_at: str
    at: str
    basis: StartBasis
    after: Union[str, None]
    late_s: Union[float, None]


class JobReason(TypedDict, total=False):
    code: str
    text: str


class JobDevices(TypedDict, total=False):
    min: int
    max: int
    assigned: int


JobAssignmentItem = TypedDict('JobAssignmentItem', {
    'rank': 'int',
    'node': 'str',
    'slot': 'int',
    'class': 'str',
}, total=False)


class JobProgress(TypedDict, total=False):
    step: int
    steps: int
    loss: Union[float, None]
    tokens_per_s: Union[float, None]
    eta_s: Union[float, None]


class JobEval(TypedDict, total=False):
    step: int
    loss: Union[float, None]
    tokens: int
    unigram: float


class JobRestarts(TypedDict, total=False):
    system: int
    node: int
    user: int


class JobArray(TypedDict, total=False):
    count: int
    max_running: int
    tasks: Dict[str, int]
    waiting: str


class JobTask(TypedDict, total=False):
    id: str
    array: str
    index: int
    params: Union[Dict[str, Any], None]


JobSlowItem = TypedDict('JobSlowItem', {
    'rank': 'int',
    'node': 'str',
    'class': "Literal['compute', 'link', 'compute and link', 'host']",
    'factor': 'float',
    'text': 'str',
    'confirmed': 'bool',
}, total=False)


Outcome = TypedDict('Outcome', {
    'class': "Literal['done', 'user', 'system', 'node', 'preempted', 'cancelled']",
    'message': 'str',
    'rank': 'Union[int, None]',
    'node': 'Union[str, None]',
    'exit_code': 'Union[int, None]',
    'signal': 'Union[int, None]',
    'cause': 'Union[str, None]',
    'action': "Literal['nothing', 'in-place', 'elsewhere', 'roll-back', 'fail', 'fail-user']",
    'back': 'int',
    'log_tail': 'Union[List[str], None]',
}, total=False)


class Layout(TypedDict, total=False):
    tp: int
    pp: int
    dp: int
    cp: int


class PlannedLayout(TypedDict, total=False):
    layout: Layout
    devices: int
    micro: int
    schedule: str
    chunks: int
    recompute: str
    fits: Union[bool, None]
    memory_mib: float
    memory_limit_mib: float
    step_ms: float
    slower_percent: float
    why: str


class Plan(TypedDict, total=False):
    layout: Layout
    devices: int
    micro: int
    schedule: str
    chunks: int
    recompute: str
    virtual_workers: int
    sequence_parallel: bool
    layers: List[int]
    step_ms: float
    breakdown_ms: Dict[str, float]
    memory_mib: List[Dict[str, float]]
    memory_limit_mib: float
    rates: Literal['measured', 'assumed']
    considered: int
    unfit: int
    why: str
    alternatives: List[PlannedLayout]
    settled: Dict[str, Any]
    fits: Union[bool, None]
    starts_now: bool
    free_devices: int
    dedication: PlanDedication
    predicted_step_ms: float
    measured_step_ms: Union[float, None]
    error_percent: Union[float, None]


class PlanDedication(TypedDict, total=False):
    order: List[int]
    step_ms_in_order: float
    mixed_groups: int
    mixed_groups_in_order: int


class DryRun(TypedDict, total=False):
    dry_run: Literal[True]
    plan: Plan
    spec: Spec


class Cluster(TypedDict, total=False):
    nodes: Dict[str, int]
    slots: ClusterSlots
    classes: Dict[str, ClusterClassesValue]
    jobs: Dict[str, int]
    queue: int


class ClusterSlots(TypedDict, total=False):
    total: int
    busy: int
    free: int


class ClusterClassesValue(TypedDict, total=False):
    total: int
    free: int


class StateChange(TypedDict, total=False):
    assignment: List[Dict[str, Any]]
    layout: Layout
    plan: Union[Plan, None]
    outcome: Outcome


Event = TypedDict('Event', {
    'id': 'str',
    'at': 'str',
    'job': 'Union[str, None]',
    'type': "Literal['submitted', 'state', 'checkpoint', 'eval', 'metrics', 'rank', 'node', 'token', 'webhook', "
            "'schedule', 'allocation', 'note', 'quarantine', 'unreadable']",
    'from': 'Union[State, None]',
    'to': 'Union[State, None]',
    'generation': 'int',
    'actor': 'str',
    'cause': 'EventCause',
    'data': 'Union[Dict[str, Any], None]',
}, total=False)


EventCause = TypedDict('EventCause', {
    'code': 'str',
    'class': 'Union[str, None]',
    'text': 'str',
}, total=False)


class EventGap(TypedDict, total=False):
    events: int
    before: Union[str, None]


class LogPiece(TypedDict, total=False):
    job: str
    rank: int
    generation: int
    offset: int
    text: str
    next_offset: int
    size: int
    left_out: LogPieceLeftOut


LogPieceLeftOut = TypedDict('LogPieceLeftOut', {
    'from': 'int',
    'to': 'int',
}, total=False)


class Checkpoint(TypedDict, total=False):
    step: int
    path: str
    bytes: int
    stored_bytes: int
    seconds: float
    codec: str
    layout: CheckpointLayout
    state: Literal['complete', 'incomplete', 'removed', 'failed', 'unknown']
    disk_bytes: int
    files: int
    archived: bool
    rank: int
    at: str
    generation: int


class CheckpointLayout(TypedDict, total=False):
    tp: int
    pp: int
    cp: int
    dp: int


class Quarantined(TypedDict, total=False):
    id: str
    kind: Literal['job', 'node', 'project', 'token', 'key', 'unknown']
    name: str
    why: str
    at: str


Booking = TypedDict('Booking', {
    'id': 'str',
    'from': 'str',
    'to': 'Union[str, None]',
    'now': 'bool',
    'reason': 'str',
    'by': 'str',
    'nodes': 'List[str]',
    'every_s': 'Union[int, None]',
    'devices': 'int',
    'class': 'Union[str, None]',
    'project': 'Union[str, None]',
    'user': 'Union[str, None]',
}, total=False)


class Secret(TypedDict, total=False):
    name: str
    set_at: str


class Schedule(TypedDict, total=False):
    id: str
    name: str
    user: str
    cron: str
    timezone: str
    overlap: Literal['skip', 'queue']
    missed: Literal['skip', 'run-once']
    enabled: bool
    created_at: str
    next_at: Union[str, None]
    last_at: Union[str, None]
    last_job: Union[str, None]
    runs: int
    skipped: int
    why: Union[str, None]
    spec: Dict[str, Any]


class Webhook(TypedDict, total=False):
    id: str
    name: str
    user: str
    url: str
    format: Literal['json', 'slack', 'email']
    on: List[NoticeType]
    project: Union[str, None]
    scope: Literal['own', 'cluster']
    enabled: bool
    created_at: str
    failing_since: Union[str, None]
    waiting: int
    dropped: int
    secret: str


class Delivery(TypedDict, total=False):
    id: str
    type: str
    at: str
    state: Literal['waiting', 'delivered', 'failed']
    tries: int
    status: Union[int, None]
    ms: int
    why: Union[str, None]
    next_at: Union[str, None]


class Token(TypedDict, total=False):
    id: str
    user: str
    role: Literal['viewer', 'user', 'admin', 'agent']
    made_at: Union[str, None]
    expires_at: Union[str, None]
    last_used_at: Union[str, None]
    node: Union[str, None]
    unix_user: Union[str, None]
    file: bool
    token: str


IncidentBrief = TypedDict('IncidentBrief', {
    'id': 'str',
    'generation': 'int',
    'number': 'int',
    'kind': "Literal['hang', 'failure']",
    'at': 'str',
    'class': 'str',
    'text': 'str',
}, total=False)


class Explain(TypedDict, total=False):
    job: str
    state: State
    summary: str
    causes: List[ExplainCausesItem]
    rates: List[ExplainRatesItem]


ExplainCausesItem = TypedDict('ExplainCausesItem', {
    'code': 'str',
    'text': 'str',
    'need': 'Union[int, None]',
    'free': 'Union[int, None]',
    'elsewhere': 'int',
    'class': 'Union[str, None]',
    'behind': 'List[str]',
    'would_help': 'List[str]',
    'classes': 'List[ExplainCausesItemClassesItem]',
    'starts': 'Start',
}, total=False)


ExplainCausesItemClassesItem = TypedDict('ExplainCausesItemClassesItem', {
    'class': 'str',
    'total': 'int',
    'free': 'int',
    'drained': 'int',
    'spare': 'int',
}, total=False)


ExplainRatesItem = TypedDict('ExplainRatesItem', {
    'class': 'str',
    'devices': 'int',
    'steps_per_s': 'float',
    'from': "Literal['measured', 'other numbers of devices', 'single workers', 'other classes', 'the planner']",
    'count': 'int',
    'spread': 'float',
}, total=False)


class Session(TypedDict, total=False):
    session: str
    ticket: str
    url: str
    expires_s: int


class Audit(TypedDict, total=False):
    id: str
    at: str
    type: Literal['audit']
    actor: Union[str, None]
    token: Union[str, None]
    address: str
    request_id: str
    method: str
    path: str
    status: int
    code: Union[str, None]
    before: Union[Dict[str, Any], None]
    after: Union[Dict[str, Any], None]
    cut: bool
    left_out: int


class Batch(TypedDict, total=False):
    jobs: List[BatchJobsItem]


class BatchJobsItem(TypedDict, total=False):
    id: str
    name: Union[str, None]


Project = TypedDict('Project', {
    'name': 'str',
    'quota': 'Union[int, None]',
    'borrow': 'Union[int, None]',
    'parent': 'Union[str, None]',
    'classes': 'Union[Dict[str, ProjectClassesValue], None]',
    'weight': 'float',
    'class': "Literal['elastic', 'guaranteed', 'opportunistic']",
    'max_priority': 'Union[int, None]',
    'max_running': 'Union[int, None]',
    'max_queued': 'Union[int, None]',
    'max_devices_per_user': 'Union[int, None]',
    'max_time_s': 'Union[int, None]',
    'default_time_s': 'Union[int, None]',
    'members': 'Union[Dict[str, ProjectRole], None]',
    'used': 'ProjectUsed',
}, total=False)


class ProjectClassesValue(TypedDict, total=False):
    quota: int
    borrow: Union[int, None]


class ProjectUsed(TypedDict, total=False):
    devices: int
    device_seconds: float
    lately_device_seconds: float


class Problem(TypedDict, total=False):
    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: List[ProblemErrorsItem]


class ProblemErrorsItem(TypedDict, total=False):
    pointer: str
    message: str


class ListJobsAnswer(TypedDict, total=False):
    jobs: List[Union[Job, Dict[str, Any]]]
    next_cursor: Union[str, None]
    quarantine: ListJobsAnswerQuarantine


class ListJobsAnswerQuarantine(TypedDict, total=False):
    records: int
    jobs: List[str]


class SubmitJobsBody(TypedDict, total=False):
    jobs: List[Dict[str, Any]]


class CancelJobsBody(TypedDict, total=False):
    selector: CancelJobsBodySelector
    dry_run: bool
    cursor: str


class CancelJobsBodySelector(TypedDict, total=False):
    user: str
    project: str
    state: str
    name: str
    label: str


class CancelJobsAnswer(TypedDict, total=False):
    dry_run: bool
    jobs: List[CancelJobsAnswerJobsItem]
    next_cursor: Union[str, None]


class CancelJobsAnswerJobsItem(TypedDict, total=False):
    id: str
    name: str
    state: State


class ChangeJobBody(TypedDict, total=False):
    priority: int
    devices: ChangeJobBodyDevices
    array: ChangeJobBodyArray
    limits: ChangeJobBodyLimits


class ChangeJobBodyDevices(TypedDict, total=False):
    min: int
    max: int


class ChangeJobBodyArray(TypedDict, total=False):
    max_running: int


class ChangeJobBodyLimits(TypedDict, total=False):
    time_s: int


class ResumeJobBody(TypedDict, total=False):
    limits: ResumeJobBodyLimits


class ResumeJobBodyLimits(TypedDict, total=False):
    more_s: int


class ListJobEventsAnswer(TypedDict, total=False):
    events: List[Event]
    next_cursor: Union[str, None]
    left_out: Union[None, EventGap]


class ReadJobLogsAnswer(TypedDict, total=False):
    complete: bool
    attempts: List[int]
    removed: bool
    lines: List[str]
    logs: List[LogPiece]


class ReadJobMetricsAnswer(TypedDict, total=False):
    metrics: Dict[str, List[Union[float, None]]]
    points: int
    steps: int
    left_out_bytes: int


ReadJobSeriesAnswer = TypedDict('ReadJobSeriesAnswer', {
    'from': 'int',
    'to': 'int',
    'first': 'int',
    'last': 'int',
    'most': 'int',
    'step': 'List[int]',
    'n': 'List[int]',
    'series': 'Dict[str, ReadJobSeriesAnswerSeriesValue]',
    'attempts': 'List[ReadJobSeriesAnswerAttemptsItem]',
}, total=False)


class ReadJobSeriesAnswerSeriesValue(TypedDict, total=False):
    mean: List[Union[float, None]]
    least: List[Union[float, None]]
    most: List[Union[float, None]]


class ReadJobSeriesAnswerAttemptsItem(TypedDict, total=False):
    attempt: int
    step: int


class ListJobCheckpointsAnswer(TypedDict, total=False):
    checkpoints: List[Checkpoint]
    next_cursor: Union[str, None]


class ExportCheckpointBody(TypedDict, total=False):
    dtype: Literal['f32', 'bf16', 'f16']


class SampleCheckpointBody(TypedDict, total=False):
    prompt: str
    tokens: int
    temperature: float
    seed: int


class OpenSessionBody(TypedDict, total=False):
    argv: List[str]
    tty: bool
    rank: int
    env: Dict[str, str]
    workdir: str
    cols: int
    rows: int


class OpenConnectionBody(TypedDict, total=False):
    port: Union[int, str]
    rank: int


class ReadJobRanksAnswer(TypedDict, total=False):
    attempt: int
    ranks: List[ReadJobRanksAnswerRanksItem]
    stages: List[ReadJobRanksAnswerStagesItem]
    series: ReadJobRanksAnswerSeries


ReadJobRanksAnswerRanksItem = TypedDict('ReadJobRanksAnswerRanksItem', {
    'rank': 'int',
    'node': 'str',
    'slot': 'int',
    'class': 'str',
    'stage': 'int',
    'memory_percent': 'Union[int, None]',
    'parts': 'StepParts',
}, total=False)


class ReadJobRanksAnswerStagesItem(TypedDict, total=False):
    stage: int
    ranks: int
    parts: StepParts


class ReadJobRanksAnswerSeries(TypedDict, total=False):
    width: int
    step: List[int]


class ListIncidentsAnswer(TypedDict, total=False):
    incidents: List[IncidentBrief]


class ListEventsAnswer(TypedDict, total=False):
    events: List[Event]
    next_cursor: Union[str, None]
    left_out: Union[None, EventGap]


class ListNodesAnswer(TypedDict, total=False):
    nodes: List[Node]
    next_cursor: Union[str, None]


class EnrollNodeAnswer(TypedDict, total=False):
    node: str
    code: str
    expires_at: str


class ForgetNodeAnswer(TypedDict, total=False):
    node: str
    token: bool
    codes: int


class EndNodeBody(TypedDict, total=False):
    at: str
    reason: str


class ListAllocationsAnswer(TypedDict, total=False):
    queues: List[ListAllocationsAnswerQueuesItem]
    allocations: List[ListAllocationsAnswerAllocationsItem]
    trouble: Union[str, None]


ListAllocationsAnswerQueuesItem = TypedDict('ListAllocationsAnswerQueuesItem', {
    'name': 'str',
    'class': 'str',
    'devices': 'int',
    'fixed': 'int',
    'most': 'int',
    'time_s': 'int',
    'idle_s': 'int',
    'trouble': 'Union[str, None]',
}, total=False)


class ListAllocationsAnswerAllocationsItem(TypedDict, total=False):
    id: str
    queue: str
    state: Literal['asked', 'waiting', 'running', 'released']
    nodes: int
    arrived: int
    busy: bool
    asked_at: str
    ends_at: Union[str, None]
    reference: str
    why: str


class ReadPlanAnswer(TypedDict, total=False):
    at: str
    jobs: List[Outlook]
    left_out: int


class AskWhatIfBody(TypedDict, total=False):
    job: str
    priority: int
    min: int
    max: int
    add_nodes: AskWhatIfBodyAddNodes


AskWhatIfBodyAddNodes = TypedDict('AskWhatIfBodyAddNodes', {
    'class': 'str',
    'nodes': 'int',
    'devices': 'int',
}, total=False)


class AskWhatIfAnswer(TypedDict, total=False):
    at: str
    now: Outlook
    then: Outlook
    others: List[AskWhatIfAnswerOthersItem]


class AskWhatIfAnswerOthersItem(TypedDict, total=False):
    job: str
    starts_now: Union[str, None]
    starts_then: Union[str, None]
    devices_now: int
    devices_then: int


class ListMaintenanceAnswer(TypedDict, total=False):
    maintenance: List[Booking]


AddMaintenanceBody = TypedDict('AddMaintenanceBody', {
    'nodes': 'List[str]',
    'from': 'Union[str, None]',
    'to': 'str',
    'every_s': 'Union[int, None]',
    'reason': 'Union[str, None]',
}, total=False)


class ListReservationsAnswer(TypedDict, total=False):
    reservations: List[Booking]


AddReservationBody = TypedDict('AddReservationBody', {
    'devices': 'int',
    'class': 'Union[str, None]',
    'from': 'Union[str, None]',
    'to': 'str',
    'project': 'Union[str, None]',
    'user': 'Union[str, None]',
    'reason': 'Union[str, None]',
}, total=False)


GetUsageAnswer = TypedDict('GetUsageAnswer', {
    'from': 'str',
    'to': 'str',
    'usage': 'List[Usage]',
    'left_out': 'int',
    'incomplete': 'bool',
}, total=False)


class GetEstimatesReportAnswer(TypedDict, total=False):
    estimates: List[GetEstimatesReportAnswerEstimatesItem]


class GetEstimatesReportAnswerEstimatesItem(TypedDict, total=False):
    basis: StartBasis
    count: int
    median_error_s: Union[int, None]
    in_time: float


class ListProfilesAnswer(TypedDict, total=False):
    profiles: List[ListProfilesAnswerProfilesItem]


ListProfilesAnswerProfilesItem = TypedDict('ListProfilesAnswerProfilesItem', {
    'class': 'str',
    'nodes': 'int',
    'profile': 'Dict[str, Any]',
}, total=False)


class GetPredictionsReportAnswer(TypedDict, total=False):
    predictions: List[GetPredictionsReportAnswerPredictionsItem]
    worst: List[GetPredictionsReportAnswerWorstItem]


GetPredictionsReportAnswerPredictionsItem = TypedDict('GetPredictionsReportAnswerPredictionsItem', {
    'class': 'str',
    'kind': 'str',
    'rates': "Literal['measured', 'assumed']",
    'count': 'int',
    'mean_error_percent': 'float',
    'p90_error_percent': 'float',
    'bias_percent': 'float',
}, total=False)


GetPredictionsReportAnswerWorstItem = TypedDict('GetPredictionsReportAnswerWorstItem', {
    'job': 'str',
    'attempt': 'int',
    'class': 'str',
    'kind': 'str',
    'predicted_step_ms': 'float',
    'measured_step_ms': 'float',
    'error_percent': 'float',
}, total=False)


class ListProjectsAnswer(TypedDict, total=False):
    projects: List[Project]
    next_cursor: None


class PutMemberBody(TypedDict, total=False):
    role: ProjectRole


class ListAuditAnswer(TypedDict, total=False):
    audit: List[Audit]
    next_cursor: Union[str, None]


class ListTokensAnswer(TypedDict, total=False):
    tokens: List[Token]
    next_cursor: None


class CreateTokenBody(TypedDict, total=False):
    user: str
    role: Literal['viewer', 'user', 'admin']
    expires_at: Union[str, None]
    unix_user: Union[str, None]


class ListSecretsAnswer(TypedDict, total=False):
    secrets: List[Secret]
    next_cursor: None


class SetSecretBody(TypedDict, total=False):
    value: str


class ListSchedulesAnswer(TypedDict, total=False):
    schedules: List[Schedule]
    next_cursor: None


class AddScheduleBody(TypedDict, total=False):
    name: str
    cron: str
    spec: Spec
    timezone: str
    overlap: Literal['skip', 'queue']
    missed: Literal['skip', 'run-once']


class ChangeScheduleBody(TypedDict, total=False):
    enabled: bool
    cron: str
    timezone: str
    overlap: Literal['skip', 'queue']
    missed: Literal['skip', 'run-once']


class ListWebhooksAnswer(TypedDict, total=False):
    webhooks: List[Webhook]
    next_cursor: None


class AddWebhookBody(TypedDict, total=False):
    name: str
    url: str
    on: List[NoticeType]
    format: Literal['json', 'slack', 'email']
    scope: Literal['own', 'cluster']
    project: str
    secret: str


class ChangeWebhookBody(TypedDict, total=False):
    enabled: bool
    on: List[NoticeType]


class ListDeliveriesAnswer(TypedDict, total=False):
    deliveries: List[Delivery]
    next_cursor: None


class ListQuarantineAnswer(TypedDict, total=False):
    records: List[Quarantined]
    next_cursor: None


class HealthAnswer(TypedDict, total=False):
    status: Literal['ok']
    version: str


class ReadyAnswer(TypedDict, total=False):
    status: Literal['ready', 'degraded']
    quarantined: int
    logs: str
