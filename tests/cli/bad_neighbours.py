"""Mistakes with services, networks, memory that gives, and grids. Files are made beside the log, as in `bad_inputs`."""

from __future__ import annotations

_CHAT = "chat: {target_ms: 50, service_ms: 8, rate: 5"

FILES: dict[str, str] = {
    "endless_rate.yaml": "chat: {target_ms: 50, service_ms: 8, rate: .inf}",
    "few_replicas.yaml": f"{_CHAT}, replicas: [3, 1]}}",
    "no_hour.yaml": "chat: {target_ms: 50, service_ms: 8, rate: {99: 1}}",
    "word_hour.yaml": "chat: {target_ms: 50, service_ms: 8, rate: {noon: 1}}",
    "no_mapping.yaml": "[1, 2]",
    "nowhere_type.yaml": f"{_CHAT}, gpu_type: nosuch}}",
    "large.yaml": f"{_CHAT}, gib: 9999}}",
    "no_requests.yaml": "chat: {target_ms: 50, service_ms: 8, requests: nofile.csv}",
    "fast_beside.yaml": f"{_CHAT}, beside: {{bert: 1.5}}}}",
    "interleaving.yaml": f"{_CHAT}, interleaving: 9}}",
    "both_rates.yaml": f"{_CHAT}, requests: a.csv}}",
    "no_target.yaml": "chat: {service_ms: 8, rate: 5}",
    "tight.yaml": "chat: {target_ms: 8, service_ms: 8, rate: 5}",
    "typo.yaml": f"{_CHAT}, replica: 3}}",
    "calm.yaml": f"{_CHAT}, calm_s: 0}}",
    "alone.yaml": f"{_CHAT}, alone: maybe}}",
    "three.yaml": "run: x\nservice: {target_ms: 50, service_ms: 8, replicas: [1, 2, 3]}",
    "number.yaml": "run: x\nservice: 5",
    "nan.yaml": "run: x\nservice: {target_ms: .nan, service_ms: 8}",
    "gang.yaml": "run: x\ngpus: 2\nservice: {target_ms: 50, service_ms: 8}",
    "array.yaml": "run: x\narray: 0-3\nservice: {target_ms: 50, service_ms: 8}",
    "crowd.yaml": "run: x\nservice: {target_ms: 50, service_ms: 8, replicas: [1, 5000]}",
}
_SERVICES = [
    f"simulate LOG --cluster 1x4:h200 --profile h200 --policy sjf-bsbf --services {name}"
    for name, text in FILES.items()
    if not text.startswith("run:")
]
_JOBS = tuple(f"submit {name}" for name, text in FILES.items() if text.startswith("run:"))
_CLUSTERS = tuple(
    f"simulate LOG --cluster {cluster}"
    for cluster in ("2x4/link=0", "2x4/link=nan", "2x4/link=10,rack=0", "2x4/link=10,uplink=-1", "2x4/borrow=20@0.5",
                    "2x4/mem=80,borrow=20@2", "2x4/mem=80,borrow=-1@0.5", "2x4/link=ten", "2x4/uplink=10")
)  # fmt: skip
_OTHERS = (
    "simulate LOG --cluster 1x4 --services nofile.yaml",
    "simulate LOG --cluster 1x4 --services .",
    "simulate LOG --cluster 2x4 --network avoid",
    "simulate LOG --cluster 2x4/link=10 --network nosuch",
    "simulate LOG --cluster 1x4 --policy sjf-bsbf --oversubscribe 0.5",
    "simulate LOG --cluster 1x4 --policy sjf-bsbf --oversubscribe nan",
    "simulate LOG --cluster 1x4 --policy sjf-bsbf --oversubscribe 1.5@0",
    "simulate LOG --cluster 1x4 --policy sjf-bsbf --oversubscribe 1.5@x",
    "compare LOG --cluster 1x4 --policies fifo --oversubscribe 1.5",
    "compare LOG --cluster 1x4 --policies fifo --services endless_rate.yaml",
    "compare LOG --cluster 1x4 --policies fifo --baseline nosuch",
    "compare LOG --cluster 1x4 --policies fifo --vary nodes=",
    "compare LOG --cluster 1x4 --policies fifo --vary nodes=1-1000000",
    "compare LOG --cluster 1x4 --policies fifo --seeds 0-99999999",
    "compare LOG --cluster 1x4 --policies fifo --keep /proc/nope",
    "compare LOG --cluster 1x4 --policies fifo --where gpus>",
    "compare LOG --cluster 1x4 --policies fifo --where __import__('os')",
    "compare LOG --cluster 1x4 --policies fifo --from tomorrow",
    "compare LOG --cluster 1x4 --policies fifo --from 10d",
    "plan LOG --cluster 1x4 --goal p95_queue<-1h --vary nodes=1-4",
    "calibrate LOG --cluster 0x8",
    "calibrate header.csv --cluster 1x4",
    "analyze LOG --cluster 1x4 --html nowhere/a.html",
    "why LOG nobody --at 10 --cluster 1x4",
    "generate philly-like:jobs=5,load=nan --cluster 1x8 --out x.csv",
    "ps --state nosuch",
    "serve --gpus -1",
    "serve --gpus 4 --oversubscribe 0",
    "serve --backend local:slices=nosuch --gpus 2",
)
ALL = (*_SERVICES, *_JOBS, *_CLUSTERS, *_OTHERS)
