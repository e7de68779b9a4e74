#!/usr/bin/env python3
"""Print the dashboard of Grafana from this table: make.py > muster.json

Import it in Grafana (Dashboards, New, Import) and choose the Prometheus that scrapes musterd."""
import json
import sys

SOURCE = {"type": "prometheus", "uid": "${source}"}
# A row's title, then its panels: title, kind, unit, width of 24, queries with their legends.
ROWS = [
    ("Now", [
        ("Devices in use", "stat", "percentunit", 4,
         [('sum(muster_slots{state="busy"}) / clamp_min(sum(muster_slots), 1)', "")]),
        ("Jobs running", "stat", "short", 4, [('sum(muster_jobs{state="running"})', "")]),
        ("Jobs waiting", "stat", "short", 4, [('sum(muster_jobs{state="queued"})', "")]),
        ("Wait, median of an hour", "stat", "s", 4,
         [("histogram_quantile(0.5, sum by (le) (rate(muster_queue_wait_seconds_bucket[1h])))", "")]),
        ("Nodes that do not report", "stat", "short", 4, [("count(muster_node_up == 0) or vector(0)", "")]),
        ("Slow devices", "stat", "short", 4, [("sum(muster_slow_devices)", "")]),
    ]),
    ("Devices and jobs", [
        ("Devices by class and use", "timeseries", "short", 12,
         [("sum by (class, state) (muster_devices)", "{{class}} {{state}}")]),
        ("Devices by project", "timeseries", "short", 12,
         [('sum by (project) (muster_devices{state="busy"})', "{{project}}")]),
        ("Jobs by state", "timeseries", "short", 12,
         [('muster_jobs{state!~"succeeded|failed|cancelled"}', "{{state}}")]),
        ("Jobs ended in an hour", "timeseries", "short", 12,
         [('delta(muster_jobs{state=~"succeeded|failed|cancelled"}[1h])', "{{state}}")]),
        ("Wait for devices", "timeseries", "s", 12,
         [(f"histogram_quantile({q}, sum by (le) (rate(muster_queue_wait_seconds_bucket[15m])))", f"p{q * 100:g}")
          for q in (0.5, 0.9, 0.99)]),
        ("Step of a training job", "timeseries", "s", 12, [("muster_job_step_seconds", "{{job}} {{project}}")]),
    ]),
    ("GPUs", [
        ("Utilization by node", "timeseries", "percent", 12,
         [("avg by (node) (muster_gpu_utilization_percent)", "{{node}}")]),
        ("Power by node", "timeseries", "watt", 12, [("sum by (node) (muster_gpu_power_watts)", "{{node}}")]),
    ]),
    ("Server", [
        ("Time of a request", "timeseries", "s", 8,
         [(f"histogram_quantile({q}, sum by (le) (rate(muster_request_seconds_bucket[5m])))", f"p{q * 100:g}")
          for q in (0.5, 0.99)]),
        ("Time of a commit", "timeseries", "s", 8,
         [("histogram_quantile(0.99, sum by (le) (rate(muster_commit_seconds_bucket[5m])))", "p99")]),
        ("Time of a round", "timeseries", "s", 8,
         [("histogram_quantile(0.99, sum by (le) (rate(muster_scheduling_round_seconds_bucket[15m])))", "p99")]),
        ("Answers", "timeseries", "reqps", 8, [("sum by (status) (rate(muster_requests_total[5m]))", "{{status}}")]),
        ("Streams and waiting calls", "timeseries", "short", 8,
         [("muster_followers", "streams"), ("muster_long_polls", "agents that wait"),
          ("muster_call_queue", "requests that wait")]),
        ("Store", "timeseries", "short", 8,
         [("muster_store_up", "store answers"), ("muster_logs_waiting", "logs wait for the disk")]),
    ]),
]


def panels():
    number, top = 0, 0
    for title, row in ROWS:
        number += 1
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [],
               "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}}
        top, left, high = top + 1, 0, 0
        for name, kind, unit, width, queries in row:
            if left + width > 24:
                top, left, high = top + high, 0, 0
            number, high = number + 1, max(high, 4 if kind == "stat" else 8)
            yield {"id": number, "type": kind, "title": name, "datasource": SOURCE,
                   "gridPos": {"x": left, "y": top, "w": width, "h": 4 if kind == "stat" else 8},
                   "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []}, "options": {},
                   "targets": [{"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expr,
                                "legendFormat": legend or "__auto"} for i, (expr, legend) in enumerate(queries)]}
            left += width
        top += high


def main():
    json.dump({"title": "Muster", "uid": "muster", "tags": ["muster"], "schemaVersion": 38, "version": 1,
               "editable": True, "refresh": "30s", "time": {"from": "now-6h", "to": "now"}, "timezone": "browser",
               "annotations": {"list": []}, "links": [],
               "templating": {"list": [{"name": "source", "label": "Prometheus", "type": "datasource",
                                        "query": "prometheus", "hide": 0}]},
               "panels": list(panels())}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
