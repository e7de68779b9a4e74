"""A node.

Written by `make openapi` from api/openapi.yaml.
"""
from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict, Union



class Node(TypedDict, total=False):
    id: str
    state: Literal['ready', 'draining', 'drained', 'unknown', 'lost']
    address: str
    version: str
    rack: str
    shared_account: bool
    last_seen: Union[str, None]
    drain_by: Union[str, None]
    leaves_at: Union[str, None]
    health: NodeHealth
    test: NodeTest
    nic: NodeNic
    links: List[NodeLinksItem]
    slots: List[NodeSlotsItem]


class NodeHealth(TypedDict, total=False):
    state: Literal['well', 'suspect', 'draining', 'quarantined', 'testing', 'probation', 'repair', 'drained']
    reason: str
    since: Union[str, None]
    until: Union[str, None]
    score: float
    incidents: int
    check: NodeHealthCheck


class NodeHealthCheck(TypedDict, total=False):
    level: Literal['well', 'no-work', 'drain']
    reason: str
    since: Union[str, None]


class NodeTest(TypedDict, total=False):
    running: Union[int, None]
    id: int
    at: str
    passed: bool
    why: str
    memory_gb_s: float
    gemm_gflop_s: float
    disk_mb_s: float
    loopback_gb_s: float


class NodeNic(TypedDict, total=False):
    family: Literal['infiniband', 'roce', 'ethernet']
    gbit_s: Union[float, None]


class NodeLinksItem(TypedDict, total=False):
    to: str
    bytes_per_s: float
    measured_at: str


NodeSlotsItem = TypedDict('NodeSlotsItem', {
    'slot': 'int',
    'kind': 'str',
    'trains': 'bool',
    'class': 'str',
    'state': "Literal['free', 'busy', 'spare', 'quarantined', 'unknown', 'lost']",
    'job': 'Union[str, None]',
    'rank': 'Union[int, None]',
    'calendar': 'NodeSlotsItemCalendar',
    'slow': 'NodeSlotsItemSlow',
    'gpu': 'NodeSlotsItemGpu',
}, total=False)


class NodeSlotsItemCalendar(TypedDict, total=False):
    maintenance: bool
    reservation: Union[str, None]
    closes_at: Union[str, None]
    opens_at: Union[str, None]


class NodeSlotsItemSlow(TypedDict, total=False):
    ratio: float
    since: str
    retry_at: str


class NodeSlotsItemGpu(TypedDict, total=False):
    slot: int
    uuid: str
    name: str
    pci: str
    numa: Union[int, None]
    mig: bool
    memory_mib: int
    memory_used_mib: Union[int, None]
    utilization: Union[int, None]
    power_w: Union[int, None]
    temperature_c: Union[int, None]
    power_limit_w: Union[int, None]
    sm_mhz: Union[int, None]
    slowed: bool
    ecc_uncorrected: Union[int, None]
    why: str
    found: NodeSlotsItemGpuFound


class NodeSlotsItemGpuFound(TypedDict, total=False):
    code: int
    level: Literal['watch', 'drain', 'stop']
    blame: int
    node: bool
    what: str
    age_ms: int
