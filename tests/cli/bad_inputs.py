"""Two hundred mistakes that people make. LOG is a good log of five jobs; files below are made beside it."""

from __future__ import annotations

HEADER = "job_id,submit_s,num_gpus,duration_s"

# A file, and what is wrong with it.
FILES: dict[str, str] = {
    "blank.csv": "\n\n",
    "header.csv": HEADER + "\n",
    "words.csv": "to be or not to be\nthat is the question\n",
    "short.csv": "job_id,submit_s,num_gpu,duration_s\na,0,1,5\n",
    "no_id.csv": HEADER + "\n,0,1,5\n",
    "twice.csv": HEADER + "\na,0,1,5\na,1,1,5\n",
    "columns_twice.csv": "job_id,submit_s,num_gpus,num_gpus,duration_s\na,0,1,1,5\n",
    "text.csv": HEADER + "\na,zero,1,5\n",
    "half.csv": HEADER + "\na,0,0.5,5\n",
    "minus.csv": HEADER + "\na,0,-1,5\n",
    "zero.csv": HEADER + "\na,0,0,5\n",
    "endless.csv": HEADER + "\na,0,1,inf\n",
    "huge.csv": HEADER + "\na,0,1,1e300\n",
    "nan.csv": HEADER + "\na,nan,1,5\n",
    "wide.csv": HEADER + "\na,0,1,5,6,7\n",
    "late.csv": HEADER + ",deadline_s\na,100,1,5,50\n",
    "deadlines.csv": HEADER + ",deadlines\na,0,1,5,9:1;10:2\n",
    "both.csv": HEADER + ",deadline_s,deadlines\na,0,1,5,50,9:1\n",
    "least.csv": HEADER + ",min_gpus\na,0,2,5,4\n",
    "most.csv": HEADER + ",max_gpus\na,0,2,5,1\n",
    "nodes.csv": HEADER + ",nodes\na,0,3,5,2\n",
    "attempts.csv": HEADER + ",attempts\na,0,1,5,9;9\n",
    "attempts_text.csv": HEADER + ",attempts\na,0,1,5,x\n",
    "status.csv": HEADER + ",status\na,0,1,5,happy\n",
    "priority.csv": HEADER + ",priority\na,0,1,5,1.5\n",
    "weight.csv": HEADER + ",weight\na,0,1,5,0\n",
    "movable.csv": HEADER + ",movable\na,0,1,5,2\n",
    "steps.csv": "job_id,submit_s,num_gpus,steps\na,0,1,\n",
    "bad.json": "{]",
    "list.json": "[1, 2, 3]",
    "object.json": '{"a": 1}',
    "pods.json": '{"kind": "List", "items": []}',
    "helios.csv": "job_id,gpu_num,submit_time,duration\na,1,yesterday,5\n",
    "sacct.txt": "JobID|Submit|Start|End|State\n1|2024-01-01T00:00:00|Unknown|Unknown|PENDING\n",
    "sacct_date.txt": "JobID|Submit|Start|End|AllocTRES\n1|soon|Unknown|Unknown|gres/gpu=1\n",
    "bad.swf": "; Version: 2.2\n1 0 x 10 4 -1 -1 4 100 -1 1 1 1 -1 1 -1 -1 -1\n",
    "broken.parquet": "PAR1 not really",
    "cluster.yaml": "groups: [{nodes: many, gpus: 8}]\n",
    "empty.yaml": "",
    "quota.yaml": "groups: [{nodes: 1, gpus: 4}]\nquotas: {a: -1}\n",
    "list.yaml": "- 1\n- 2\n",
    "mine.py": (
        "from cotenant.policies import OrderPolicy, PriorityPolicy\n"
        "class Raises(PriorityPolicy):\n    def priority(self, view):\n        return view.nothing\n"
        "class Texts(PriorityPolicy):\n    def priority(self, view):\n        return ['a'] * len(view.rows)\n"
        "class Nothing(PriorityPolicy):\n    def priority(self, view):\n        return None\n"
        "class Mapped(PriorityPolicy):\n    def priority(self, view):\n        return {'a': 1}\n"
        "class Short(PriorityPolicy):\n    def priority(self, view):\n        return view.gpus[:1]\n"
        "class Nan(PriorityPolicy):\n    def priority(self, view):\n        return view.gpus * float('nan')\n"
        "class NoRound(PriorityPolicy):\n    round_s = 0\n    def priority(self, view):\n        return view.gpus\n"
        "class NoMethod(PriorityPolicy):\n    pass\n"
        "class Ordered(OrderPolicy):\n    order = ('gpus',)\n"
        "class Divides(PriorityPolicy):\n    def priority(self, view):\n        return 1 // 0\n"
        "class Picky(PriorityPolicy):\n    def __init__(self, must):\n        pass\n"
        "    def priority(self, view):\n        return view.gpus\n"
        "def function(view):\n    return view.gpus\n"
    ),
    "syntax.py": "class (:\n",
    "raises.py": "raise RuntimeError('no')\n",
}
_OF_FILES = tuple(
    f"simulate {name} --cluster 1x4" for name in FILES if name.endswith((".csv", ".json", ".txt", ".swf", ".parquet"))
)
_CLUSTERS = tuple(
    f"simulate LOG --cluster {spec}"
    for spec in (
        "x", "4", "0x4", "4x0", "1y4", "-1x4", "1x4:", "1x4/cpu=", "1x4/cpu=-2", "1x4/cpu=nan", "1x4/disk=9", "1x4+",
        "+1x4", "99999999x99999", "1000000x8", "1x1", "1.5x4", "cluster.yaml", "empty.yaml", "quota.yaml", "list.yaml",
        "nowhere.yaml", "1x4:v100:k80",
    )
)  # fmt: skip
_POLICIES = tuple(
    f"simulate LOG --cluster 1x4 --policy {spec}"
    for spec in (
        "fifoo", "fifo:strict", "fifo:strict=maybe", "fifo:speed=3", "fifo:strict=true,strict=false", "easy:a=1",
        "las:round=-1", "las:round=x", "las:min_run=-1", "srtf:min_run=-5", "tiresias-l:queues=0",
        "tiresias-l:threshold=-1", "tiresias-l:queues=1.5", "tiresias-l:thresholds=[5/1]", "tiresias-g:inner=foo",
        "gavel:objective=fame", "gavel:budget=-1", "allox:alpha=-1", "themis:f=2", "ftf:first=last", "ftf:round=-5",
        "chronus:lease=0", "chronus:slot=0", "chronus:lease=-20", "chronus:solver=magic", "chronus:profiling=-1",
        "ones:population=0", "ones:interval=0", "ones:mutation=-2", "optimus:interval=-1", "muri-s:group=0",
        "muri-s:noise=-1", "sjf-bsbf:pairs=best", "antman:control_s=0", "antman:busy_limit=-1", "gandiva:quantum=0",
        "gandiva:group=0", "horus:look_ahead=0", "horus+:queues=-1", "philly:timeout=-1", "philly:retries=-1", "philly:wait=x",
        "qssf:first=x", ":", "=", "mine.py", "mine.py:", "mine.py:Nobody", "mine.py:function", "mine.py:Raises",
        "mine.py:Texts", "mine.py:Nothing", "mine.py:Mapped", "mine.py:Short", "mine.py:Nan", "mine.py:NoRound",
        "mine.py:NoMethod", "mine.py:Ordered", "mine.py:Divides", "mine.py:Picky", "mine.py:Raises:a=1", "syntax.py:A",
        "raises.py:A", "nowhere.py:A",
    )
)  # fmt: skip
_OPTIONS = tuple(
    f"simulate LOG --cluster 1x4 {rest}"
    for rest in (
        "--placement here", "--placement relaxed:after=-5", "--placement relaxed:after=x", "--placement skew:limit=7",
        "--placement skew:limit=-1", "--placement spread:a=1", "--allocator magic", "--profile nowhere.json",
        "--profile LOG", "--models cars", "--estimator psychic", "--estimator noisy:error=-1", "--estimator noisy:error=x",
        "--costs free", "--costs -5", "--costs nan", "--round 0", "--round -1", "--round nan", "--round soon",
        "--compat nobody", "--compat gavel:quirk=1", "--measure 3", "--measure 3-1", "--measure 0-1000",
        "--measure 9-9", "--measure a-b", "--until -1", "--until nan", "--until later", "--seed -1", "--seed x",
        "--fail-nodes mtbf=10", "--fail-nodes mtbf=0", "--fail-nodes mttr=5", "--fail-nodes often", "--fail-jobs attempts=0",
        "--fail-jobs x=1", "--crash earth", "--crash ffdl:learner=-1", "--power sun", "--power ces:boot=-1",
        "--power ces --fail-nodes mtbf=1e9", "--format martian", "--json nowhere/x.json", "--json .",
        "--jobs-csv nowhere/x.csv", "--jobs-csv .", "--nothing", "--policy", "--seed 1.5", "LOG",
        "--where gpus", "--where gpus>", "--where colour=='red'", "--where __import__('os')", "--from never",
        "--to -5", "--from 1e9", "--where gpus>1000",
    )
)  # fmt: skip
_COMPARE = tuple(
    f"compare LOG --cluster 1x4 {rest}"
    for rest in (
        "", "--policies", "--policies ,", "--policies fifo,fifo", "--policies fifo --policies fifo",
        "--policies fifo,backfil", "--policies fifo --seeds 4-1", "--policies fifo --seeds 0,0,0", "--policies fifo --seeds -1",
        "--policies fifo --seeds 1.5", "--policies fifo --seeds 0-2 --seed 3", "--policies fifo --loads 1,1",
        "--policies fifo --loads 0", "--policies fifo --loads -1", "--policies fifo --loads inf", "--policies fifo --loads x",
        "--policies fifo --gantt 0-5", "--policies fifo --html x.html --gantt 5", "--policies fifo --html -",
        "--policies fifo --html .", "--policies fifo --html nowhere/x.html", "--policies fifo --jobs-csv LOG",
        "--policies fifo --workers -1", "--policies fifo --workers two", "--policies fifo,srtf --baseline las",
        "--policies fifo --vary colour=red", "--policies fifo --vary placement", "--policies fifo --vary placement=",
        "--policies fifo --vary nodes=0", "--policies fifo --vary nodes=a", "--policies fifo --vary nodes=2,2",
        "--policies fifo --vary nodes=1 --vary nodes=2", "--policies mine.py:Raises,fifo", "--policies mine.py:Texts,fifo",
    )
)  # fmt: skip
_OTHERS = (
    "simulate", "simulate LOG", "simulate nowhere.csv --cluster 1x4", "simulate . --cluster 1x4",
    "simulate philly-lik:jobs=5 --cluster 1x4", "simulate philly-like:jobs=-1 --cluster 1x4",
    "simulate philly-like:jobs=x --cluster 1x4", "simulate philly-like:jobs=1,jobs=2 --cluster 1x4",
    "simulate philly-like:jobs=0 --cluster 1x4", "simulate philly-like:load=-1 --cluster 1x4",
    "simulate philly-like:colour=red --cluster 1x4", "simulate philly-like:jobs=5 --cluster 1x4 --format cotenant",
    "simulate philly-like:mix=[3] --cluster 1x4", "why LOG nobody --at 5 --cluster 1x4", "why LOG a --at nan --cluster 1x4",
    "why LOG a --at soon --cluster 1x4", "why LOG a --cluster 1x4", "why LOG a --at 5", "generate phily-like",
    "generate philly-like:jobs=5 --out .", "generate philly-like:jobs=5 --cluster-out .", "generate LOG",
    "traces describe", "traces describe nowhere.csv", "traces describe bad.json", "traces descibe LOG",
    "traces describe LOG --cluster x", "traces describe LOG --format martian", "traces convert LOG",
    "traces convert LOG --out x.doc", "traces convert LOG --out nowhere/x.csv", "policies --frobnicate", "frobnicate",
    "policies fifoo extra", "estimator evaluate LOG --estimator psychic", "estimator evaluate nowhere.csv",
    "analyze nowhere.csv", "analyze words.csv", "plan LOG --cluster 1x4 --goal p95_queue<1h",
    "plan LOG --cluster 1x4 --goal fast --vary nodes=1-4", "plan LOG --cluster 1x4 --goal p95_queue<soon --vary nodes=1-4",
    "plan LOG --cluster 1x4 --goal colour<1h --vary nodes=1-4", "plan LOG --cluster 1x4 --goal p95_queue<1h --vary speed=1-4",
    "plan LOG --cluster 1x4 --goal p95_queue<1h --vary nodes=4-1", "calibrate LOG --cluster 1x4", "calibrate nowhere.csv",
)  # fmt: skip
ALL = (*_OF_FILES, *_CLUSTERS, *_POLICIES, *_OPTIONS, *_COMPARE, *_OTHERS)
