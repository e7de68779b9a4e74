"""A method for each route of Muster's REST surface.

Written by `make openapi` from api/openapi.yaml.
"""
from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Optional, cast

from ._http import Transport, quote

if TYPE_CHECKING:
    from typing import Dict, List, Literal, Union

    from .types import *  # pylint: disable=wildcard-import,unused-wildcard-import


def new_key() -> str:
    return uuid.uuid4().hex


class Routes:
    """Each call is made again while the server is busy or away, where that does no harm."""
    _transport: Transport

    def list_jobs(self, *, state: Optional[str] = None, project: Optional[str] = None, user: Optional[str] = None,
            name: Optional[str] = None, label: Optional[str] = None, fields: Optional[str] = None,
            array: Optional[str] = None, metric: Optional[str] = None, limit: Optional[int] = None,
            cursor: Optional[str] = None) -> ListJobsAnswer:
        """GET /v1/jobs: Jobs the caller may see, newest first."""
        return cast('ListJobsAnswer', self._transport.call('GET', '/v1/jobs', query={'state': state,
                'project': project, 'user': user, 'name~': name, 'label': label, 'fields': fields, 'array': array,
                'metric': metric, 'limit': limit, 'cursor': cursor}))

    def submit_job(self, body: Any, *, dry_run: Optional[int] = None, traceparent: Optional[str] = None,
            key: Optional[str] = None) -> Union[Job, DryRun]:
        """POST /v1/jobs: Submit a job."""
        return cast('Union[Job, DryRun]', self._transport.call('POST', '/v1/jobs', query={'dry_run': dry_run},
                body=body, headers={'traceparent': traceparent, 'Idempotency-Key': key or new_key()}))

    def submit_jobs(self, body: SubmitJobsBody, *, traceparent: Optional[str] = None,
            key: Optional[str] = None) -> Batch:
        """POST /v1/jobs:batch: Queue many jobs, all of them or none."""
        return cast('Batch', self._transport.call('POST', '/v1/jobs:batch', body=body,
                headers={'traceparent': traceparent, 'Idempotency-Key': key or new_key()}))

    def cancel_jobs(self, body: CancelJobsBody) -> CancelJobsAnswer:
        """POST /v1/jobs:cancel: End all active jobs that a selector names, of those that the caller may act on."""
        return cast('CancelJobsAnswer', self._transport.call('POST', '/v1/jobs:cancel', body=body))

    def get_job(self, id: str) -> Job:
        """GET /v1/jobs/{id}: A job with its spec."""
        return cast('Job', self._transport.call('GET', f"/v1/jobs/{quote(id)}"))

    def change_job(self, id: str, body: ChangeJobBody, *, if_match: Optional[str] = None) -> Job:
        """PATCH /v1/jobs/{id}: Change a job's priority, number of devices or time limit."""
        return cast('Job', self._transport.call('PATCH', f"/v1/jobs/{quote(id)}", body=body,
                headers={'If-Match': if_match}))

    def cancel_job(self, id: str) -> Job:
        """POST /v1/jobs/{id}/cancel: End a job."""
        return cast('Job', self._transport.call('POST', f"/v1/jobs/{quote(id)}/cancel"))

    def suspend_job(self, id: str) -> Job:
        """POST /v1/jobs/{id}/suspend: Write a checkpoint and give the devices back."""
        return cast('Job', self._transport.call('POST', f"/v1/jobs/{quote(id)}/suspend"))

    def resume_job(self, id: str, *, body: Optional[ResumeJobBody] = None) -> Job:
        """POST /v1/jobs/{id}/resume: Queue a suspended job again, or one that its time limit has ended, with more
        time."""
        return cast('Job', self._transport.call('POST', f"/v1/jobs/{quote(id)}/resume", body=body))

    def checkpoint_job(self, id: str) -> Job:
        """POST /v1/jobs/{id}/checkpoint: Write a checkpoint at the next step."""
        return cast('Job', self._transport.call('POST', f"/v1/jobs/{quote(id)}/checkpoint"))

    def retry_array(self, id: str, *, state: Optional[Literal['failed', 'cancelled']] = None,
            key: Optional[str] = None) -> Job:
        """POST /v1/jobs/{id}/retry: Submit the tasks of an array that failed, or were cancelled, as an array of their
        own."""
        return cast('Job', self._transport.call('POST', f"/v1/jobs/{quote(id)}/retry", query={'state': state},
                headers={'Idempotency-Key': key or new_key()}))

    def list_job_events(self, id: str, *, limit: Optional[int] = None,
            cursor: Optional[str] = None) -> ListJobEventsAnswer:
        """GET /v1/jobs/{id}/events: What happened to a job, oldest first."""
        return cast('ListJobEventsAnswer', self._transport.call('GET', f"/v1/jobs/{quote(id)}/events",
                query={'limit': limit, 'cursor': cursor}))

    def read_job_logs(self, id: str, *, rank: Optional[int] = None, generation: Optional[int] = None,
            offset: Optional[int] = None, tail: Optional[int] = None, since_s: Optional[int] = None,
            grep: Optional[str] = None, before: Optional[int] = None) -> ReadJobLogsAnswer:
        """GET /v1/jobs/{id}/logs: Output of a job's ranks."""
        return cast('ReadJobLogsAnswer', self._transport.call('GET', f"/v1/jobs/{quote(id)}/logs",
                query={'rank': rank, 'generation': generation, 'offset': offset, 'tail': tail, 'since_s': since_s,
                'grep': grep, 'before': before}))

    def read_job_metrics(self, id: str, *, names: Optional[str] = None,
            points: Optional[int] = None) -> ReadJobMetricsAnswer:
        """GET /v1/jobs/{id}/metrics: Columns of a job's metrics by step."""
        return cast('ReadJobMetricsAnswer', self._transport.call('GET', f"/v1/jobs/{quote(id)}/metrics",
                query={'names': names, 'points': points}))

    def read_job_series(self, id: str, *, names: Optional[str] = None, from_: Optional[int] = None,
            to: Optional[int] = None, buckets: Optional[int] = None) -> ReadJobSeriesAnswer:
        """GET /v1/jobs/{id}/series: A part of a job's curves, with the least and the most of each bucket of steps."""
        return cast('ReadJobSeriesAnswer', self._transport.call('GET', f"/v1/jobs/{quote(id)}/series",
                query={'names': names, 'from': from_, 'to': to, 'buckets': buckets}))

    def list_job_checkpoints(self, id: str) -> ListJobCheckpointsAnswer:
        """GET /v1/jobs/{id}/checkpoints: Checkpoints a job has written, newest last."""
        return cast('ListJobCheckpointsAnswer', self._transport.call('GET', f"/v1/jobs/{quote(id)}/checkpoints"))

    def delete_checkpoint(self, id: str, step: int) -> Job:
        """DELETE /v1/jobs/{id}/checkpoints/{step}: Remove a checkpoint."""
        return cast('Job', self._transport.call('DELETE', f"/v1/jobs/{quote(id)}/checkpoints/{quote(step)}",
                again=False))

    def verify_checkpoint(self, id: str, step: int) -> Job:
        """POST /v1/jobs/{id}/checkpoints/{step}/verify: Read a checkpoint as a whole and check it."""
        return cast('Job', self._transport.call('POST', f"/v1/jobs/{quote(id)}/checkpoints/{quote(step)}/verify",
                again=False))

    def export_checkpoint(self, id: str, step: int, *, body: Optional[ExportCheckpointBody] = None) -> Job:
        """POST /v1/jobs/{id}/checkpoints/{step}/export: Write a checkpoint's weights as Hugging Face safetensors into
        the job's folder."""
        return cast('Job', self._transport.call('POST', f"/v1/jobs/{quote(id)}/checkpoints/{quote(step)}/export",
                body=body, again=False))

    def sample_checkpoint(self, id: str, step: int, *, body: Optional[SampleCheckpointBody] = None) -> Job:
        """POST /v1/jobs/{id}/checkpoints/{step}/sample: Write text with a checkpoint of the built-in engine."""
        return cast('Job', self._transport.call('POST', f"/v1/jobs/{quote(id)}/checkpoints/{quote(step)}/sample",
                body=body, again=False))

    def explain_job(self, id: str) -> Explain:
        """GET /v1/jobs/{id}/explain: Why a job waits, was moved or failed, and what would change that."""
        return cast('Explain', self._transport.call('GET', f"/v1/jobs/{quote(id)}/explain"))

    def diagnose_job(self, id: str) -> AgentIncident:
        """GET /v1/jobs/{id}/diagnosis: What each rank of a live job does now, and which of them holds up the
        others."""
        return cast('AgentIncident', self._transport.call('GET', f"/v1/jobs/{quote(id)}/diagnosis"))

    def open_session(self, id: str, body: OpenSessionBody) -> Session:
        """POST /v1/jobs/{id}/exec: Open a session with a program beside a rank of a live job; for its owner and
        admins."""
        return cast('Session', self._transport.call('POST', f"/v1/jobs/{quote(id)}/exec", body=body, again=False))

    def open_connection(self, id: str, body: OpenConnectionBody) -> Session:
        """POST /v1/jobs/{id}/forward: Open a connection to a port of a live job's programs; for its owner and
        admins."""
        return cast('Session', self._transport.call('POST', f"/v1/jobs/{quote(id)}/forward", body=body, again=False))

    def join_session(self, session: str, *, ticket: Optional[str] = None) -> None:
        """GET /v1/exec/{session}: The WebSocket of a session (RFC 6455), with its ticket in place of a token."""
        self._transport.call('GET', f"/v1/exec/{quote(session)}", query={'ticket': ticket})

    def read_job_ranks(self, id: str, *, stage: Optional[int] = None, rank: Optional[int] = None) -> ReadJobRanksAnswer:
        """GET /v1/jobs/{id}/ranks: What the ranks of a running job spend their steps on."""
        return cast('ReadJobRanksAnswer', self._transport.call('GET', f"/v1/jobs/{quote(id)}/ranks",
                query={'stage': stage, 'rank': rank}))

    def list_incidents(self, id: str) -> ListIncidentsAnswer:
        """GET /v1/jobs/{id}/incidents: The newest times that a job stood still or a rank of it failed, the last one
        first."""
        return cast('ListIncidentsAnswer', self._transport.call('GET', f"/v1/jobs/{quote(id)}/incidents"))

    def get_incident(self, id: str, n: str) -> AgentIncident:
        """GET /v1/jobs/{id}/incidents/{n}: What was known of the ranks, before they were ended."""
        return cast('AgentIncident', self._transport.call('GET', f"/v1/jobs/{quote(id)}/incidents/{quote(n)}"))

    def list_events(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> ListEventsAnswer:
        """GET /v1/events: Everything the caller may see."""
        return cast('ListEventsAnswer', self._transport.call('GET', '/v1/events', query={'limit': limit,
                'cursor': cursor}))

    def list_nodes(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> ListNodesAnswer:
        """GET /v1/nodes: Nodes with their slots, by name."""
        return cast('ListNodesAnswer', self._transport.call('GET', '/v1/nodes', query={'limit': limit,
                'cursor': cursor}))

    def get_node(self, id: str) -> Node:
        """GET /v1/nodes/{id}: A node."""
        return cast('Node', self._transport.call('GET', f"/v1/nodes/{quote(id)}"))

    def remove_node(self, id: str) -> Node:
        """DELETE /v1/nodes/{id}: Take a node off the list that is lost, or drained; an agent that is still there
        ends."""
        return cast('Node', self._transport.call('DELETE', f"/v1/nodes/{quote(id)}", again=False))

    def enroll_node(self, id: str, *, life_s: Optional[int] = None) -> EnrollNodeAnswer:
        """POST /v1/nodes/{id}/enroll: Make a code that a machine's agent trades for a token of this node, once and
        within 15 minutes."""
        return cast('EnrollNodeAnswer', self._transport.call('POST', f"/v1/nodes/{quote(id)}/enroll",
                query={'life_s': life_s}, again=False))

    def forget_node(self, id: str) -> ForgetNodeAnswer:
        """DELETE /v1/nodes/{id}/enroll: The node's token and codes are no longer good."""
        return cast('ForgetNodeAnswer', self._transport.call('DELETE', f"/v1/nodes/{quote(id)}/enroll", again=False))

    def read_node_series(self, id: str, *, from_: Optional[int] = None, to: Optional[int] = None,
            buckets: Optional[int] = None) -> ClusterSeries:
        """GET /v1/nodes/{id}/series: How a node and its devices did over time."""
        return cast('ClusterSeries', self._transport.call('GET', f"/v1/nodes/{quote(id)}/series",
                query={'from': from_, 'to': to, 'buckets': buckets}))

    def drain_node(self, id: str, *, deadline_s: Optional[int] = None, reason: Optional[str] = None) -> Node:
        """POST /v1/nodes/{id}/drain: Keep new work off a node and move its jobs away at a checkpoint."""
        return cast('Node', self._transport.call('POST', f"/v1/nodes/{quote(id)}/drain",
                query={'deadline_s': deadline_s, 'reason': reason}))

    def undrain_node(self, id: str) -> Node:
        """POST /v1/nodes/{id}/undrain: Give a node work again."""
        return cast('Node', self._transport.call('POST', f"/v1/nodes/{quote(id)}/undrain"))

    def test_node(self, id: str) -> Node:
        """POST /v1/nodes/{id}/test: Let a node's agent test its memory, arithmetic, disk and loopback, once; the
        node's test has the result."""
        return cast('Node', self._transport.call('POST', f"/v1/nodes/{quote(id)}/test"))

    def end_node(self, id: str, *, body: Optional[EndNodeBody] = None) -> Booking:
        """POST /v1/nodes/{id}/end: Say when a node goes for good."""
        return cast('Booking', self._transport.call('POST', f"/v1/nodes/{quote(id)}/end", body=body, again=False))

    def get_cluster(self) -> Cluster:
        """GET /v1/cluster: Totals of slots and jobs."""
        return cast('Cluster', self._transport.call('GET', '/v1/cluster'))

    def list_allocations(self) -> ListAllocationsAnswer:
        """GET /v1/allocations: Nodes that a provider lends, or was asked for (musterd --provider)."""
        return cast('ListAllocationsAnswer', self._transport.call('GET', '/v1/allocations'))

    def read_plan(self) -> ReadPlanAnswer:
        """GET /v1/cluster/plan: Until when jobs run and when waiting ones start, as the scheduler sees it now."""
        return cast('ReadPlanAnswer', self._transport.call('GET', '/v1/cluster/plan'))

    def read_cluster_series(self, *, from_: Optional[int] = None, to: Optional[int] = None,
            buckets: Optional[int] = None, limit: Optional[int] = None, cursor: Optional[str] = None) -> ClusterSeries:
        """GET /v1/cluster/series: How all devices did over time, by pages of nodes."""
        return cast('ClusterSeries', self._transport.call('GET', '/v1/cluster/series', query={'from': from_,
                'to': to, 'buckets': buckets, 'limit': limit, 'cursor': cursor}))

    def ask_what_if(self, body: AskWhatIfBody) -> AskWhatIfAnswer:
        """POST /v1/cluster/what-if: When a job would start if something were different."""
        return cast('AskWhatIfAnswer', self._transport.call('POST', '/v1/cluster/what-if', body=body))

    def get_snapshot(self) -> str:
        """GET /v1/cluster/snapshot: What a scheduling round would see now, for muster simulate --snapshot."""
        return cast('str', self._transport.call('GET', '/v1/cluster/snapshot'))

    def list_maintenance(self) -> ListMaintenanceAnswer:
        """GET /v1/maintenance: When which nodes are out of work."""
        return cast('ListMaintenanceAnswer', self._transport.call('GET', '/v1/maintenance'))

    def add_maintenance(self, body: AddMaintenanceBody) -> Booking:
        """POST /v1/maintenance: Take nodes out of work for a time."""
        return cast('Booking', self._transport.call('POST', '/v1/maintenance', body=body, again=False))

    def delete_maintenance(self, id: str) -> Booking:
        """DELETE /v1/maintenance/{id}: Let the nodes work on."""
        return cast('Booking', self._transport.call('DELETE', f"/v1/maintenance/{quote(id)}", again=False))

    def list_reservations(self) -> ListReservationsAnswer:
        """GET /v1/reservations: Which devices are kept for whom."""
        return cast('ListReservationsAnswer', self._transport.call('GET', '/v1/reservations'))

    def add_reservation(self, body: AddReservationBody) -> Booking:
        """POST /v1/reservations: Keep devices for a time for jobs that name the reservation."""
        return cast('Booking', self._transport.call('POST', '/v1/reservations', body=body, again=False))

    def delete_reservation(self, id: str) -> Booking:
        """DELETE /v1/reservations/{id}: Let everyone have its devices."""
        return cast('Booking', self._transport.call('DELETE', f"/v1/reservations/{quote(id)}", again=False))

    def get_usage(self, *, from_: Optional[str] = None, to: Optional[str] = None,
            by: Optional[str] = None) -> GetUsageAnswer:
        """GET /v1/usage: Device time, waits and energy of jobs that the caller may see, by user, project and
        class."""
        return cast('GetUsageAnswer', self._transport.call('GET', '/v1/usage', query={'from': from_, 'to': to,
                'by': by}))

    def get_estimates_report(self) -> GetEstimatesReportAnswer:
        """GET /v1/reports/estimates: How good the estimates of starts were, by what they rested on."""
        return cast('GetEstimatesReportAnswer', self._transport.call('GET', '/v1/reports/estimates'))

    def get_schema(self) -> str:
        """GET /v1/schema: The JSON schema of a spec."""
        return cast('str', self._transport.call('GET', '/v1/schema'))

    def list_profiles(self) -> ListProfilesAnswer:
        """GET /v1/profiles: What nodes have measured of the classes of their devices."""
        return cast('ListProfilesAnswer', self._transport.call('GET', '/v1/profiles'))

    def get_predictions_report(self) -> GetPredictionsReportAnswer:
        """GET /v1/reports/predictions: How far planned steps were off from those that attempts took, by class of
        devices and kind of job."""
        return cast('GetPredictionsReportAnswer', self._transport.call('GET', '/v1/reports/predictions'))

    def list_projects(self) -> ListProjectsAnswer:
        """GET /v1/projects: Projects with limits of their own, and what they use."""
        return cast('ListProjectsAnswer', self._transport.call('GET', '/v1/projects'))

    def get_project(self, name: str) -> Project:
        """GET /v1/projects/{name}: A project's limits, and what it uses."""
        return cast('Project', self._transport.call('GET', f"/v1/projects/{quote(name)}"))

    def put_project(self, name: str, body: Project) -> Project:
        """PUT /v1/projects/{name}: Set a project's limits; what is left out gets its default."""
        return cast('Project', self._transport.call('PUT', f"/v1/projects/{quote(name)}", body=body))

    def delete_project(self, name: str) -> Project:
        """DELETE /v1/projects/{name}: Forget a project of which no job is active."""
        return cast('Project', self._transport.call('DELETE', f"/v1/projects/{quote(name)}", again=False))

    def put_member(self, name: str, user: str, body: PutMemberBody) -> Project:
        """PUT /v1/projects/{name}/members/{user}: Make a user a member or manager of a project; for its managers and
        for admins."""
        return cast('Project', self._transport.call('PUT', f"/v1/projects/{quote(name)}/members/{quote(user)}",
                body=body))

    def drop_member(self, name: str, user: str) -> Project:
        """DELETE /v1/projects/{name}/members/{user}: Take a user out of a project; for its managers and for
        admins."""
        return cast('Project', self._transport.call('DELETE', f"/v1/projects/{quote(name)}/members/{quote(user)}",
                again=False))

    def list_audit(self, *, user: Optional[str] = None, from_: Optional[str] = None, to: Optional[str] = None,
            limit: Optional[int] = None, cursor: Optional[str] = None) -> ListAuditAnswer:
        """GET /v1/audit: What people changed and what they were refused, oldest first; for admins."""
        return cast('ListAuditAnswer', self._transport.call('GET', '/v1/audit', query={'user': user, 'from': from_,
                'to': to, 'limit': limit, 'cursor': cursor}))

    def list_tokens(self) -> ListTokensAnswer:
        """GET /v1/tokens: Whose tokens there are, without their text; for admins."""
        return cast('ListTokensAnswer', self._transport.call('GET', '/v1/tokens'))

    def create_token(self, body: CreateTokenBody) -> Token:
        """POST /v1/tokens: Make a token; its text is in this answer only."""
        return cast('Token', self._transport.call('POST', '/v1/tokens', body=body, again=False))

    def list_secrets(self) -> ListSecretsAnswer:
        """GET /v1/secrets: The names of the caller's secrets."""
        return cast('ListSecretsAnswer', self._transport.call('GET', '/v1/secrets'))

    def set_secret(self, name: str, body: SetSecretBody) -> Secret:
        """PUT /v1/secrets/{name}: Keep a value that jobs of the caller may name in `command.env`; it is not told
        again."""
        return cast('Secret', self._transport.call('PUT', f"/v1/secrets/{quote(name)}", body=body))

    def delete_secret(self, name: str) -> Secret:
        """DELETE /v1/secrets/{name}: Forget a secret that no job names which has not ended."""
        return cast('Secret', self._transport.call('DELETE', f"/v1/secrets/{quote(name)}", again=False))

    def list_schedules(self) -> ListSchedulesAnswer:
        """GET /v1/schedules: The caller's schedules; those of all for admins."""
        return cast('ListSchedulesAnswer', self._transport.call('GET', '/v1/schedules'))

    def add_schedule(self, body: AddScheduleBody) -> Schedule:
        """POST /v1/schedules: Have a job submitted again and again, at times of cron."""
        return cast('Schedule', self._transport.call('POST', '/v1/schedules', body=body, again=False))

    def get_schedule(self, name: str) -> Schedule:
        """GET /v1/schedules/{name}: A schedule, with its spec."""
        return cast('Schedule', self._transport.call('GET', f"/v1/schedules/{quote(name)}"))

    def change_schedule(self, name: str, body: ChangeScheduleBody) -> Schedule:
        """PATCH /v1/schedules/{name}: Switch a schedule on or off, or say when it comes."""
        return cast('Schedule', self._transport.call('PATCH', f"/v1/schedules/{quote(name)}", body=body))

    def delete_schedule(self, name: str) -> Schedule:
        """DELETE /v1/schedules/{name}: Forget a schedule; the jobs that it made stay."""
        return cast('Schedule', self._transport.call('DELETE', f"/v1/schedules/{quote(name)}", again=False))

    def run_schedule(self, name: str) -> Schedule:
        """POST /v1/schedules/{name}/run: Submit its job now, whatever its times are."""
        return cast('Schedule', self._transport.call('POST', f"/v1/schedules/{quote(name)}/run", again=False))

    def list_webhooks(self) -> ListWebhooksAnswer:
        """GET /v1/webhooks: The caller's webhooks; those of all for admins."""
        return cast('ListWebhooksAnswer', self._transport.call('GET', '/v1/webhooks'))

    def add_webhook(self, body: AddWebhookBody) -> Webhook:
        """POST /v1/webhooks: Have what happens to jobs and nodes sent to an address."""
        return cast('Webhook', self._transport.call('POST', '/v1/webhooks', body=body, again=False))

    def get_webhook(self, name: str) -> Webhook:
        """GET /v1/webhooks/{name}: A webhook."""
        return cast('Webhook', self._transport.call('GET', f"/v1/webhooks/{quote(name)}"))

    def change_webhook(self, name: str, body: ChangeWebhookBody) -> Webhook:
        """PATCH /v1/webhooks/{name}: Switch a webhook on or off, or say of what it tells."""
        return cast('Webhook', self._transport.call('PATCH', f"/v1/webhooks/{quote(name)}", body=body))

    def delete_webhook(self, name: str) -> Webhook:
        """DELETE /v1/webhooks/{name}: Forget a webhook, with what it was still to send."""
        return cast('Webhook', self._transport.call('DELETE', f"/v1/webhooks/{quote(name)}", again=False))

    def test_webhook(self, name: str) -> Delivery:
        """POST /v1/webhooks/{name}/test: Send a notice that says that it is a test."""
        return cast('Delivery', self._transport.call('POST', f"/v1/webhooks/{quote(name)}/test"))

    def list_deliveries(self, name: str) -> ListDeliveriesAnswer:
        """GET /v1/webhooks/{name}/deliveries: What a webhook was to send, the newest first; those that wait, and the
        newest 100 of others."""
        return cast('ListDeliveriesAnswer', self._transport.call('GET', f"/v1/webhooks/{quote(name)}/deliveries"))

    def revoke_token(self, id: str) -> Token:
        """DELETE /v1/tokens/{id}: A token is no longer good, and what is followed with it ends."""
        return cast('Token', self._transport.call('DELETE', f"/v1/tokens/{quote(id)}", again=False))

    def list_quarantine(self) -> ListQuarantineAnswer:
        """GET /v1/quarantine: Records of the store that cannot be read, and why; for admins."""
        return cast('ListQuarantineAnswer', self._transport.call('GET', '/v1/quarantine'))

    def retry_quarantined(self, id: str) -> Quarantined:
        """POST /v1/quarantine/{id}/retry: Read a record once more; what it describes is there again."""
        return cast('Quarantined', self._transport.call('POST', f"/v1/quarantine/{quote(id)}/retry"))

    def drop_quarantined(self, id: str) -> Quarantined:
        """DELETE /v1/quarantine/{id}: Remove a record that cannot be read; of a job also its events, logs and
        metrics."""
        return cast('Quarantined', self._transport.call('DELETE', f"/v1/quarantine/{quote(id)}", again=False))

    def health(self) -> HealthAnswer:
        """GET /healthz: The process answers."""
        return cast('HealthAnswer', self._transport.call('GET', '/healthz'))

    def ready(self) -> ReadyAnswer:
        """GET /readyz: The server can write."""
        return cast('ReadyAnswer', self._transport.call('GET', '/readyz'))

    def metrics(self) -> str:
        """GET /metrics: Counters for Prometheus."""
        return cast('str', self._transport.call('GET', '/metrics'))


class AsyncRoutes:
    """Each call is made again while the server is busy or away, where that does no harm."""

    async def _call(self, method: str, path: str, **more: Any) -> Any:
        raise NotImplementedError

    async def list_jobs(self, *, state: Optional[str] = None, project: Optional[str] = None,
            user: Optional[str] = None, name: Optional[str] = None, label: Optional[str] = None,
            fields: Optional[str] = None, array: Optional[str] = None, metric: Optional[str] = None,
            limit: Optional[int] = None, cursor: Optional[str] = None) -> ListJobsAnswer:
        """GET /v1/jobs: Jobs the caller may see, newest first."""
        return cast('ListJobsAnswer', await self._call('GET', '/v1/jobs', query={'state': state, 'project': project,
                'user': user, 'name~': name, 'label': label, 'fields': fields, 'array': array, 'metric': metric,
                'limit': limit, 'cursor': cursor}))

    async def submit_job(self, body: Any, *, dry_run: Optional[int] = None, traceparent: Optional[str] = None,
            key: Optional[str] = None) -> Union[Job, DryRun]:
        """POST /v1/jobs: Submit a job."""
        return cast('Union[Job, DryRun]', await self._call('POST', '/v1/jobs', query={'dry_run': dry_run},
                body=body, headers={'traceparent': traceparent, 'Idempotency-Key': key or new_key()}))

    async def submit_jobs(self, body: SubmitJobsBody, *, traceparent: Optional[str] = None,
            key: Optional[str] = None) -> Batch:
        """POST /v1/jobs:batch: Queue many jobs, all of them or none."""
        return cast('Batch', await self._call('POST', '/v1/jobs:batch', body=body,
                headers={'traceparent': traceparent, 'Idempotency-Key': key or new_key()}))

    async def cancel_jobs(self, body: CancelJobsBody) -> CancelJobsAnswer:
        """POST /v1/jobs:cancel: End all active jobs that a selector names, of those that the caller may act on."""
        return cast('CancelJobsAnswer', await self._call('POST', '/v1/jobs:cancel', body=body))

    async def get_job(self, id: str) -> Job:
        """GET /v1/jobs/{id}: A job with its spec."""
        return cast('Job', await self._call('GET', f"/v1/jobs/{quote(id)}"))

    async def change_job(self, id: str, body: ChangeJobBody, *, if_match: Optional[str] = None) -> Job:
        """PATCH /v1/jobs/{id}: Change a job's priority, number of devices or time limit."""
        return cast('Job', await self._call('PATCH', f"/v1/jobs/{quote(id)}", body=body,
                headers={'If-Match': if_match}))

    async def cancel_job(self, id: str) -> Job:
        """POST /v1/jobs/{id}/cancel: End a job."""
        return cast('Job', await self._call('POST', f"/v1/jobs/{quote(id)}/cancel"))

    async def suspend_job(self, id: str) -> Job:
        """POST /v1/jobs/{id}/suspend: Write a checkpoint and give the devices back."""
        return cast('Job', await self._call('POST', f"/v1/jobs/{quote(id)}/suspend"))

    async def resume_job(self, id: str, *, body: Optional[ResumeJobBody] = None) -> Job:
        """POST /v1/jobs/{id}/resume: Queue a suspended job again, or one that its time limit has ended, with more
        time."""
        return cast('Job', await self._call('POST', f"/v1/jobs/{quote(id)}/resume", body=body))

    async def checkpoint_job(self, id: str) -> Job:
        """POST /v1/jobs/{id}/checkpoint: Write a checkpoint at the next step."""
        return cast('Job', await self._call('POST', f"/v1/jobs/{quote(id)}/checkpoint"))

    async def retry_array(self, id: str, *, state: Optional[Literal['failed', 'cancelled']] = None,
            key: Optional[str] = None) -> Job:
        """POST /v1/jobs/{id}/retry: Submit the tasks of an array that failed, or were cancelled, as an array of their
        own."""
        return cast('Job', await self._call('POST', f"/v1/jobs/{quote(id)}/retry", query={'state': state},
                headers={'Idempotency-Key': key or new_key()}))

    async def list_job_events(self, id: str, *, limit: Optional[int] = None,
            cursor: Optional[str] = None) -> ListJobEventsAnswer:
        """GET /v1/jobs/{id}/events: What happened to a job, oldest first."""
        return cast('ListJobEventsAnswer', await self._call('GET', f"/v1/jobs/{quote(id)}/events",
                query={'limit': limit, 'cursor': cursor}))

    async def read_job_logs(self, id: str, *, rank: Optional[int] = None, generation: Optional[int] = None,
            offset: Optional[int] = None, tail: Optional[int] = None, since_s: Optional[int] = None,
            grep: Optional[str] = None, before: Optional[int] = None) -> ReadJobLogsAnswer:
        """GET /v1/jobs/{id}/logs: Output of a job's ranks."""
        return cast('ReadJobLogsAnswer', await self._call('GET', f"/v1/jobs/{quote(id)}/logs", query={'rank': rank,
                'generation': generation, 'offset': offset, 'tail': tail, 'since_s': since_s, 'grep': grep,
                'before': before}))

    async def read_job_metrics(self, id: str, *, names: Optional[str] = None,
            points: Optional[int] = None) -> ReadJobMetricsAnswer:
        """GET /v1/jobs/{id}/metrics: Columns of a job's metrics by step."""
        return cast('ReadJobMetricsAnswer', await self._call('GET', f"/v1/jobs/{quote(id)}/metrics",
                query={'names': names, 'points': points}))

    async def read_job_series(self, id: str, *, names: Optional[str] = None, from_: Optional[int] = None,
            to: Optional[int] = None, buckets: Optional[int] = None) -> ReadJobSeriesAnswer:
        """GET /v1/jobs/{id}/series: A part of a job's curves, with the least and the most of each bucket of steps."""
        return cast('ReadJobSeriesAnswer', await self._call('GET', f"/v1/jobs/{quote(id)}/series",
                query={'names': names, 'from': from_, 'to': to, 'buckets': buckets}))

    async def list_job_checkpoints(self, id: str) -> ListJobCheckpointsAnswer:
        """GET /v1/jobs/{id}/checkpoints: Checkpoints a job has written, newest last."""
        return cast('ListJobCheckpointsAnswer', await self._call('GET', f"/v1/jobs/{quote(id)}/checkpoints"))

    async def delete_checkpoint(self, id: str, step: int) -> Job:
        """DELETE /v1/jobs/{id}/checkpoints/{step}: Remove a checkpoint."""
        return cast('Job', await self._call('DELETE', f"/v1/jobs/{quote(id)}/checkpoints/{quote(step)}", again=False))

    async def verify_checkpoint(self, id: str, step: int) -> Job:
        """POST /v1/jobs/{id}/checkpoints/{step}/verify: Read a checkpoint as a whole and check it."""
        return cast('Job', await self._call('POST', f"/v1/jobs/{quote(id)}/checkpoints/{quote(step)}/verify",
                again=False))

    async def export_checkpoint(self, id: str, step: int, *, body: Optional[ExportCheckpointBody] = None) -> Job:
        """POST /v1/jobs/{id}/checkpoints/{step}/export: Write a checkpoint's weights as Hugging Face safetensors into
        the job's folder."""
        return cast('Job', await self._call('POST', f"/v1/jobs/{quote(id)}/checkpoints/{quote(step)}/export",
                body=body, again=False))

    async def sample_checkpoint(self, id: str, step: int, *, body: Optional[SampleCheckpointBody] = None) -> Job:
        """POST /v1/jobs/{id}/checkpoints/{step}/sample: Write text with a checkpoint of the built-in engine."""
        return cast('Job', await self._call('POST', f"/v1/jobs/{quote(id)}/checkpoints/{quote(step)}/sample",
                body=body, again=False))

    async def explain_job(self, id: str) -> Explain:
        """GET /v1/jobs/{id}/explain: Why a job waits, was moved or failed, and what would change that."""
        return cast('Explain', await self._call('GET', f"/v1/jobs/{quote(id)}/explain"))

    async def diagnose_job(self, id: str) -> AgentIncident:
        """GET /v1/jobs/{id}/diagnosis: What each rank of a live job does now, and which of them holds up the
        others."""
        return cast('AgentIncident', await self._call('GET', f"/v1/jobs/{quote(id)}/diagnosis"))

    async def open_session(self, id: str, body: OpenSessionBody) -> Session:
        """POST /v1/jobs/{id}/exec: Open a session with a program beside a rank of a live job; for its owner and
        admins."""
        return cast('Session', await self._call('POST', f"/v1/jobs/{quote(id)}/exec", body=body, again=False))

    async def open_connection(self, id: str, body: OpenConnectionBody) -> Session:
        """POST /v1/jobs/{id}/forward: Open a connection to a port of a live job's programs; for its owner and
        admins."""
        return cast('Session', await self._call('POST', f"/v1/jobs/{quote(id)}/forward", body=body, again=False))

    async def join_session(self, session: str, *, ticket: Optional[str] = None) -> None:
        """GET /v1/exec/{session}: The WebSocket of a session (RFC 6455), with its ticket in place of a token."""
        await self._call('GET', f"/v1/exec/{quote(session)}", query={'ticket': ticket})

    async def read_job_ranks(self, id: str, *, stage: Optional[int] = None,
            rank: Optional[int] = None) -> ReadJobRanksAnswer:
        """GET /v1/jobs/{id}/ranks: What the ranks of a running job spend their steps on."""
        return cast('ReadJobRanksAnswer', await self._call('GET', f"/v1/jobs/{quote(id)}/ranks",
                query={'stage': stage, 'rank': rank}))

    async def list_incidents(self, id: str) -> ListIncidentsAnswer:
        """GET /v1/jobs/{id}/incidents: The newest times that a job stood still or a rank of it failed, the last one
        first."""
        return cast('ListIncidentsAnswer', await self._call('GET', f"/v1/jobs/{quote(id)}/incidents"))

    async def get_incident(self, id: str, n: str) -> AgentIncident:
        """GET /v1/jobs/{id}/incidents/{n}: What was known of the ranks, before they were ended."""
        return cast('AgentIncident', await self._call('GET', f"/v1/jobs/{quote(id)}/incidents/{quote(n)}"))

    async def list_events(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> ListEventsAnswer:
        """GET /v1/events: Everything the caller may see."""
        return cast('ListEventsAnswer', await self._call('GET', '/v1/events', query={'limit': limit, 'cursor': cursor}))

    async def list_nodes(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> ListNodesAnswer:
        """GET /v1/nodes: Nodes with their slots, by name."""
        return cast('ListNodesAnswer', await self._call('GET', '/v1/nodes', query={'limit': limit, 'cursor': cursor}))

    async def get_node(self, id: str) -> Node:
        """GET /v1/nodes/{id}: A node."""
        return cast('Node', await self._call('GET', f"/v1/nodes/{quote(id)}"))

    async def remove_node(self, id: str) -> Node:
        """DELETE /v1/nodes/{id}: Take a node off the list that is lost, or drained; an agent that is still there
        ends."""
        return cast('Node', await self._call('DELETE', f"/v1/nodes/{quote(id)}", again=False))

    async def enroll_node(self, id: str, *, life_s: Optional[int] = None) -> EnrollNodeAnswer:
        """POST /v1/nodes/{id}/enroll: Make a code that a machine's agent trades for a token of this node, once and
        within 15 minutes."""
        return cast('EnrollNodeAnswer', await self._call('POST', f"/v1/nodes/{quote(id)}/enroll",
                query={'life_s': life_s}, again=False))

    async def forget_node(self, id: str) -> ForgetNodeAnswer:
        """DELETE /v1/nodes/{id}/enroll: The node's token and codes are no longer good."""
        return cast('ForgetNodeAnswer', await self._call('DELETE', f"/v1/nodes/{quote(id)}/enroll", again=False))

    async def read_node_series(self, id: str, *, from_: Optional[int] = None, to: Optional[int] = None,
            buckets: Optional[int] = None) -> ClusterSeries:
        """GET /v1/nodes/{id}/series: How a node and its devices did over time."""
        return cast('ClusterSeries', await self._call('GET', f"/v1/nodes/{quote(id)}/series", query={'from': from_,
                'to': to, 'buckets': buckets}))

    async def drain_node(self, id: str, *, deadline_s: Optional[int] = None, reason: Optional[str] = None) -> Node:
        """POST /v1/nodes/{id}/drain: Keep new work off a node and move its jobs away at a checkpoint."""
        return cast('Node', await self._call('POST', f"/v1/nodes/{quote(id)}/drain",
                query={'deadline_s': deadline_s, 'reason': reason}))

    async def undrain_node(self, id: str) -> Node:
        """POST /v1/nodes/{id}/undrain: Give a node work again."""
        return cast('Node', await self._call('POST', f"/v1/nodes/{quote(id)}/undrain"))

    async def test_node(self, id: str) -> Node:
        """POST /v1/nodes/{id}/test: Let a node's agent test its memory, arithmetic, disk and loopback, once; the
        node's test has the result."""
        return cast('Node', await self._call('POST', f"/v1/nodes/{quote(id)}/test"))

    async def end_node(self, id: str, *, body: Optional[EndNodeBody] = None) -> Booking:
        """POST /v1/nodes/{id}/end: Say when a node goes for good."""
        return cast('Booking', await self._call('POST', f"/v1/nodes/{quote(id)}/end", body=body, again=False))

    async def get_cluster(self) -> Cluster:
        """GET /v1/cluster: Totals of slots and jobs."""
        return cast('Cluster', await self._call('GET', '/v1/cluster'))

    async def list_allocations(self) -> ListAllocationsAnswer:
        """GET /v1/allocations: Nodes that a provider lends, or was asked for (musterd --provider)."""
        return cast('ListAllocationsAnswer', await self._call('GET', '/v1/allocations'))

    async def read_plan(self) -> ReadPlanAnswer:
        """GET /v1/cluster/plan: Until when jobs run and when waiting ones start, as the scheduler sees it now."""
        return cast('ReadPlanAnswer', await self._call('GET', '/v1/cluster/plan'))

    async def read_cluster_series(self, *, from_: Optional[int] = None, to: Optional[int] = None,
            buckets: Optional[int] = None, limit: Optional[int] = None, cursor: Optional[str] = None) -> ClusterSeries:
        """GET /v1/cluster/series: How all devices did over time, by pages of nodes."""
        return cast('ClusterSeries', await self._call('GET', '/v1/cluster/series', query={'from': from_, 'to': to,
                'buckets': buckets, 'limit': limit, 'cursor': cursor}))

    async def ask_what_if(self, body: AskWhatIfBody) -> AskWhatIfAnswer:
        """POST /v1/cluster/what-if: When a job would start if something were different."""
        return cast('AskWhatIfAnswer', await self._call('POST', '/v1/cluster/what-if', body=body))

    async def get_snapshot(self) -> str:
        """GET /v1/cluster/snapshot: What a scheduling round would see now, for muster simulate --snapshot."""
        return cast('str', await self._call('GET', '/v1/cluster/snapshot'))

    async def list_maintenance(self) -> ListMaintenanceAnswer:
        """GET /v1/maintenance: When which nodes are out of work."""
        return cast('ListMaintenanceAnswer', await self._call('GET', '/v1/maintenance'))

    async def add_maintenance(self, body: AddMaintenanceBody) -> Booking:
        """POST /v1/maintenance: Take nodes out of work for a time."""
        return cast('Booking', await self._call('POST', '/v1/maintenance', body=body, again=False))

    async def delete_maintenance(self, id: str) -> Booking:
        """DELETE /v1/maintenance/{id}: Let the nodes work on."""
        return cast('Booking', await self._call('DELETE', f"/v1/maintenance/{quote(id)}", again=False))

    async def list_reservations(self) -> ListReservationsAnswer:
        """GET /v1/reservations: Which devices are kept for whom."""
        return cast('ListReservationsAnswer', await self._call('GET', '/v1/reservations'))

    async def add_reservation(self, body: AddReservationBody) -> Booking:
        """POST /v1/reservations: Keep devices for a time for jobs that name the reservation."""
        return cast('Booking', await self._call('POST', '/v1/reservations', body=body, again=False))

    async def delete_reservation(self, id: str) -> Booking:
        """DELETE /v1/reservations/{id}: Let everyone have its devices."""
        return cast('Booking', await self._call('DELETE', f"/v1/reservations/{quote(id)}", again=False))

    async def get_usage(self, *, from_: Optional[str] = None, to: Optional[str] = None,
            by: Optional[str] = None) -> GetUsageAnswer:
        """GET /v1/usage: Device time, waits and energy of jobs that the caller may see, by user, project and
        class."""
        return cast('GetUsageAnswer', await self._call('GET', '/v1/usage', query={'from': from_, 'to': to, 'by': by}))

    async def get_estimates_report(self) -> GetEstimatesReportAnswer:
        """GET /v1/reports/estimates: How good the estimates of starts were, by what they rested on."""
        return cast('GetEstimatesReportAnswer', await self._call('GET', '/v1/reports/estimates'))

    async def get_schema(self) -> str:
        """GET /v1/schema: The JSON schema of a spec."""
        return cast('str', await self._call('GET', '/v1/schema'))

    async def list_profiles(self) -> ListProfilesAnswer:
        """GET /v1/profiles: What nodes have measured of the classes of their devices."""
        return cast('ListProfilesAnswer', await self._call('GET', '/v1/profiles'))

    async def get_predictions_report(self) -> GetPredictionsReportAnswer:
        """GET /v1/reports/predictions: How far planned steps were off from those that attempts took, by class of
        devices and kind of job."""
        return cast('GetPredictionsReportAnswer', await self._call('GET', '/v1/reports/predictions'))

    async def list_projects(self) -> ListProjectsAnswer:
        """GET /v1/projects: Projects with limits of their own, and what they use."""
        return cast('ListProjectsAnswer', await self._call('GET', '/v1/projects'))

    async def get_project(self, name: str) -> Project:
        """GET /v1/projects/{name}: A project's limits, and what it uses."""
        return cast('Project', await self._call('GET', f"/v1/projects/{quote(name)}"))

    async def put_project(self, name: str, body: Project) -> Project:
        """PUT /v1/projects/{name}: Set a project's limits; what is left out gets its default."""
        return cast('Project', await self._call('PUT', f"/v1/projects/{quote(name)}", body=body))

    async def delete_project(self, name: str) -> Project:
        """DELETE /v1/projects/{name}: Forget a project of which no job is active."""
        return cast('Project', await self._call('DELETE', f"/v1/projects/{quote(name)}", again=False))

    async def put_member(self, name: str, user: str, body: PutMemberBody) -> Project:
        """PUT /v1/projects/{name}/members/{user}: Make a user a member or manager of a project; for its managers and
        for admins."""
        return cast('Project', await self._call('PUT', f"/v1/projects/{quote(name)}/members/{quote(user)}", body=body))

    async def drop_member(self, name: str, user: str) -> Project:
        """DELETE /v1/projects/{name}/members/{user}: Take a user out of a project; for its managers and for
        admins."""
        return cast('Project', await self._call('DELETE', f"/v1/projects/{quote(name)}/members/{quote(user)}",
                again=False))

    async def list_audit(self, *, user: Optional[str] = None, from_: Optional[str] = None, to: Optional[str] = None,
            limit: Optional[int] = None, cursor: Optional[str] = None) -> ListAuditAnswer:
        """GET /v1/audit: What people changed and what they were refused, oldest first; for admins."""
        return cast('ListAuditAnswer', await self._call('GET', '/v1/audit', query={'user': user, 'from': from_,
                'to': to, 'limit': limit, 'cursor': cursor}))

    async def list_tokens(self) -> ListTokensAnswer:
        """GET /v1/tokens: Whose tokens there are, without their text; for admins."""
        return cast('ListTokensAnswer', await self._call('GET', '/v1/tokens'))

    async def create_token(self, body: CreateTokenBody) -> Token:
        """POST /v1/tokens: Make a token; its text is in this answer only."""
        return cast('Token', await self._call('POST', '/v1/tokens', body=body, again=False))

    async def list_secrets(self) -> ListSecretsAnswer:
        """GET /v1/secrets: The names of the caller's secrets."""
        return cast('ListSecretsAnswer', await self._call('GET', '/v1/secrets'))

    async def set_secret(self, name: str, body: SetSecretBody) -> Secret:
        """PUT /v1/secrets/{name}: Keep a value that jobs of the caller may name in `command.env`; it is not told
        again."""
        return cast('Secret', await self._call('PUT', f"/v1/secrets/{quote(name)}", body=body))

    async def delete_secret(self, name: str) -> Secret:
        """DELETE /v1/secrets/{name}: Forget a secret that no job names which has not ended."""
        return cast('Secret', await self._call('DELETE', f"/v1/secrets/{quote(name)}", again=False))

    async def list_schedules(self) -> ListSchedulesAnswer:
        """GET /v1/schedules: The caller's schedules; those of all for admins."""
        return cast('ListSchedulesAnswer', await self._call('GET', '/v1/schedules'))

    async def add_schedule(self, body: AddScheduleBody) -> Schedule:
        """POST /v1/schedules: Have a job submitted again and again, at times of cron."""
        return cast('Schedule', await self._call('POST', '/v1/schedules', body=body, again=False))

    async def get_schedule(self, name: str) -> Schedule:
        """GET /v1/schedules/{name}: A schedule, with its spec."""
        return cast('Schedule', await self._call('GET', f"/v1/schedules/{quote(name)}"))

    async def change_schedule(self, name: str, body: ChangeScheduleBody) -> Schedule:
        """PATCH /v1/schedules/{name}: Switch a schedule on or off, or say when it comes."""
        return cast('Schedule', await self._call('PATCH', f"/v1/schedules/{quote(name)}", body=body))

    async def delete_schedule(self, name: str) -> Schedule:
        """DELETE /v1/schedules/{name}: Forget a schedule; the jobs that it made stay."""
        return cast('Schedule', await self._call('DELETE', f"/v1/schedules/{quote(name)}", again=False))

    async def run_schedule(self, name: str) -> Schedule:
        """POST /v1/schedules/{name}/run: Submit its job now, whatever its times are."""
        return cast('Schedule', await self._call('POST', f"/v1/schedules/{quote(name)}/run", again=False))

    async def list_webhooks(self) -> ListWebhooksAnswer:
        """GET /v1/webhooks: The caller's webhooks; those of all for admins."""
        return cast('ListWebhooksAnswer', await self._call('GET', '/v1/webhooks'))

    async def add_webhook(self, body: AddWebhookBody) -> Webhook:
        """POST /v1/webhooks: Have what happens to jobs and nodes sent to an address."""
        return cast('Webhook', await self._call('POST', '/v1/webhooks', body=body, again=False))

    async def get_webhook(self, name: str) -> Webhook:
        """GET /v1/webhooks/{name}: A webhook."""
        return cast('Webhook', await self._call('GET', f"/v1/webhooks/{quote(name)}"))

    async def change_webhook(self, name: str, body: ChangeWebhookBody) -> Webhook:
        """PATCH /v1/webhooks/{name}: Switch a webhook on or off, or say of what it tells."""
        return cast('Webhook', await self._call('PATCH', f"/v1/webhooks/{quote(name)}", body=body))

    async def delete_webhook(self, name: str) -> Webhook:
        """DELETE /v1/webhooks/{name}: Forget a webhook, with what it was still to send."""
        return cast('Webhook', await self._call('DELETE', f"/v1/webhooks/{quote(name)}", again=False))

    async def test_webhook(self, name: str) -> Delivery:
        """POST /v1/webhooks/{name}/test: Send a notice that says that it is a test."""
        return cast('Delivery', await self._call('POST', f"/v1/webhooks/{quote(name)}/test"))

    async def list_deliveries(self, name: str) -> ListDeliveriesAnswer:
        """GET /v1/webhooks/{name}/deliveries: What a webhook was to send, the newest first; those that wait, and the
        newest 100 of others."""
        return cast('ListDeliveriesAnswer', await self._call('GET', f"/v1/webhooks/{quote(name)}/deliveries"))

    async def revoke_token(self, id: str) -> Token:
        """DELETE /v1/tokens/{id}: A token is no longer good, and what is followed with it ends."""
        return cast('Token', await self._call('DELETE', f"/v1/tokens/{quote(id)}", again=False))

    async def list_quarantine(self) -> ListQuarantineAnswer:
        """GET /v1/quarantine: Records of the store that cannot be read, and why; for admins."""
        return cast('ListQuarantineAnswer', await self._call('GET', '/v1/quarantine'))

    async def retry_quarantined(self, id: str) -> Quarantined:
        """POST /v1/quarantine/{id}/retry: Read a record once more; what it describes is there again."""
        return cast('Quarantined', await self._call('POST', f"/v1/quarantine/{quote(id)}/retry"))

    async def drop_quarantined(self, id: str) -> Quarantined:
        """DELETE /v1/quarantine/{id}: Remove a record that cannot be read; of a job also its events, logs and
        metrics."""
        return cast('Quarantined', await self._call('DELETE', f"/v1/quarantine/{quote(id)}", again=False))

    async def health(self) -> HealthAnswer:
        """GET /healthz: The process answers."""
        return cast('HealthAnswer', await self._call('GET', '/healthz'))

    async def ready(self) -> ReadyAnswer:
        """GET /readyz: The server can write."""
        return cast('ReadyAnswer', await self._call('GET', '/readyz'))

    async def metrics(self) -> str:
        """GET /metrics: Counters for Prometheus."""
        return cast('str', await self._call('GET', '/metrics'))
