"""Drawn input files: valid ones of every kind that a command reads, damaged at random."""

from __future__ import annotations

import random
import re
from pathlib import Path

HOSTILE = (
    "nan", "inf", "-inf", "1e999", "-1", "0", "-0.0", "1e308", "1e-320", str(2**63), "9" * 400,
    "0x10", "1_000", "", " ", "x" * 3000, "\x00", "\x1b[31m", "ä😀", "\u202e", "\ud800", "'", '"',
    "%s", "${x}", "{}", "[", "[" * 2000, "{a: " * 300, "]", "*x", "&a [*a]", "!!int x",
    "!!python/none", "2024-01-01", "2024-13-45", "9999-12-31T23:59:59Z", "0000-00-00", "~", "null",
    "true", "a=b=c", "=", ",", ":", "/", "..", "-", "--", "---", "\n", "\t", "\r", "<<: 1", "- a",
    "1:2", "0:", "1e400:2", "5d", "-3h", "99999999999999d", "{a,b}", "1-5%0", "5-1", "0-9999999999",
    "x{", "٣", "½", "²", "9" * 5000,
)  # fmt: skip
FILES = {
    "job.yaml": "name: a\ngpus: 2\ncommand: [python, train.py]\nenv: {A: b, C: 2}\nretries: 1\n"
    "time_limit: 2h\nresources: {cpus: 2, mem_gb: 4}\ncheckpoint: {path: ckpt, grace_s: 5}\n",
    "plain.yaml": "gpus: 1-4\nrun: |\n  pip list\n  python train.py --lr $lr\nworkdir: .\n"
    "sweep: {lr: [0.1, 0.2], seed: {from: 1, to: 3}}\nsecrets: [TOKEN]\nafter: [x]\n",
    "job.json": '{"name": "a", "gpus": 2, "command": ["python", "t.py"], "env": {"A": "1"}}',
    "sky.yaml": "name: a\nresources:\n  accelerators: A100:4\n  cpus: 4+\nnum_nodes: 2\n"
    "envs:\n  A: 1\nsetup: pip list\nrun: |\n  python t.py\n",
    "job.sh": "#!/bin/bash\n#SBATCH --job-name=a\n#SBATCH --gres=gpu:a100:2\n#SBATCH -N 2\n"
    "#SBATCH --time=1-02:00:00\n#SBATCH --array=0-7%2\n#SBATCH --mem=4G --cpus-per-task=3\n"
    "#SBATCH --dependency=afterok:12\nsrun python t.py\n",
    "vars.env": "# a\nA=1\nexport B='two words'\nC=\"x\\ny\"\nD\n",
    "serve.toml": 'engine = "local:cpu=true"\nport = 7878\nkeep-days = 3.5\nlimit = ["rate=5"]\n'
    '[users]\nvision = "nobody"\n',
    "serve.yaml": "port: 7878\npolicy: las\nlimit: [rate=5, jobs=10]\nown: [a=4]\nverbose: true\n",
    "policy.yaml": "name: compose\norder: {name: las, by: time}\nplace: packed\nsize: asked\n",
    "cluster.yaml": "nodes:\n- {count: 2, gpus: 4, kind: v100}\n- {count: 1, gpus: 8, kind: t4}\n",
    "weft.csv": "id,submit_s,num_gpus,duration_s\na,0,1,9\nb,3,2,50\nc,4,1,7.5\n",
    "philly.csv": "timestamp,duration,num_gpus,gpu_time\n2017-09-04 00:00:10,60,2,120\n",
    "tiresias.csv": "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
    "0,2,30,606,vgg19,164,30\n1,1,40,60,vgg16,16,10\n",
    "helios.csv": "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,"
    "duration,queue\n0,u,v,8,32,1,COMPLETED,2020-03-30 00:00:00,2020-03-30 00:00:00,"
    "2020-03-30 00:01:00,60,0\n",
    "sia.csv": "name,time,application,num_replicas,batch_size\nbert-0,5.5,bert,8,384\n",
    "gavel.trace": "LM (batch size 10)\tpython3 main.py\tlm\t--steps\t1\t8165.16\t1\t1\t-1.0\t30\n",
    "shockwave.json": '{"jobs": [{"job": 0, "arrival_s": 5.0, "model": "LM", "mode": "gns", '
    '"scale_factor": 2, "initial_batch_size": 10, "num_epochs": 3, "samples_per_epoch": 100, '
    '"batch_size_runs": [[10, 2], [20, 1]], "epoch_seconds_by_batch_size": '
    '{"10": 60.0, "20": 40.0}}]}',
    "philly.json": '[{"status": "Pass", "vc": "v", "jobid": "application_1", "user": "u", '
    '"submitted_time": "2017-10-09 07:01:55", "attempts": [{"start_time": "2017-10-09 07:02:20", '
    '"end_time": "2017-10-09 07:12:20", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}]}]',
    "spot.csv": "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,"
    "duration,job_type\nj,org,A100-SXM4-80GB,8,8,4,5.0,60.0,Spot\n",
    "muri.csv": "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
    "iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n"
    "0,8,1534,10,gpt2,4,5095,91,437,0.6,419,49,1\n",
    "openb.csv": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
    "p0,6000,12288,1,460,V100M16|V100M32,LS,Running,10,110,20\n",
    "needed.csv": "time_s,nodes\n0,1\n60,2\n",
    "pairs.json": '{"pairs": [{"models": ["a", "b"], "speeds": [0.6, 0.7]}], "gpus": 1}',
    "models.json": '{"a": {"v100": {"1": 3.5}}}',
    "users.toml": '[users]\nvision = "nobody"\n',
    "token": "abc123\n",
}  # fmt: skip
WORDS = re.compile(r"[^\s,:=\[\]{}\"']+")


def damage(rng: random.Random, text: str) -> bytes:
    """The text with a few places changed: words, lines, characters, bytes."""
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        kind = rng.randrange(7)
        at = rng.randrange(len(text) + 1)
        words = list(WORDS.finditer(text))
        if kind <= 2 and words:
            word = rng.choice(words)
            text = text[: word.start()] + rng.choice(HOSTILE) + text[word.end() :]
        elif kind == 3:
            text = text[:at] + rng.choice(HOSTILE) + text[at:]
        elif kind == 4:
            text = text[:at] + text[at + rng.randrange(20) :]
        elif kind == 5:
            text = text[:at]
        else:
            lines = text.splitlines(keepends=True) or [""]
            text = text + rng.choice(lines) + rng.choice(lines)
    data = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.05:
        at = rng.randrange(len(data) + 1)
        data = data[:at] + rng.randbytes(4) + data[at:]
    return data


def draw_file(rng: random.Random, folder: Path, suffix: str = "") -> str:
    """The name of a file in `folder` that was just written; sometimes of another kind."""
    fitting = [name for name in FILES if name.endswith(suffix)]
    name = rng.choice(fitting if fitting and rng.random() < 0.8 else list(FILES))
    (folder / name).write_bytes(damage(rng, FILES[name]))
    return name
