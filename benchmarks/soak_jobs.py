"""Jobs of the crash soak: those that count to a goal, and those that do harm."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.run_terms import Processes

TICK_S = 0.05
COUNTS = """
import fcntl, os, signal, sys, time
folder, goal = sys.argv[1], int(sys.argv[2])
job, rank = os.environ["WEFT_JOB"], os.environ["RANK"]
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
lock = os.open(f"{folder}/{job}.{rank}.lock", os.O_RDWR | os.O_CREAT)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    with open(f"{folder}/DOUBLE", "a") as out:
        out.write(f"{job} attempt {os.environ['WEFT_ATTEMPT']} rank {rank}\\n")
count = f"{folder}/{job}.count"
done = int(open(count).read()) if os.path.exists(count) else 0
while done < goal:
    time.sleep(float(sys.argv[3]))
    done += 1
    if rank == "0":
        with open(count + ".new", "w") as out:
            out.write(str(done))
        os.replace(count + ".new", count)
"""
GARBAGE = r"""
import json, os, socket
line = socket.socket(socket.AF_UNIX)
line.connect(os.environ["WEFT_AGENT"])
who = {"job": os.environ["WEFT_JOB"], "attempt": int(os.environ["WEFT_ATTEMPT"])}
said = [{"type": "hello", **who, "rank": 0, "pid": os.getpid()}]
said += [{"type": "report", "values": {name: value}} for name in ("loss", "step_s", "epoch", "x")
         for value in (1, -1, 1e300, "nan", "inf", "-inf")]
said += [{"type": "saved", "step": 10**17, "epoch": -1, "path": "/"}]
said += [{"type": "notice", "level": "x" * 99, "text": "y" * 9999}]
said += [{"type": "report", "values": {"loss": i}} for i in range(2000)]
try:
    for one in said:
        line.sendall(json.dumps(one).encode() + b"\n")
    line.sendall(b"\xff\xfe not json at all\n")
except OSError:
    pass
"""
# What a job does to its own attempt; all but the last two cannot be watched any more after it.
FORGED = '{"event":"ended","outcome":"finished","reason":""}'
HARM = {
    "removes its folder": 'rm -rf "$WEFT_ATTEMPT_DIR"; sleep 300',
    "makes a pipe of its log": "rm -f events.jsonl; mkfifo events.jsonl; sleep 300",
    "makes a folder of its log": "rm -f events.jsonl; mkdir events.jsonl; sleep 300",
    "writes nonsense into its log": 'echo "{nonsense" >> events.jsonl; sleep 300',
    "spoils its claim": "rm -f claim.json; mkfifo claim.json; sleep 300",
    "says that it ended": f"echo '{FORGED}' >> events.jsonl; sleep 300",
    "stops itself": """echo '{"grace_s": 0}' > stop.json; sleep 300""",
    "kills its agent": "kill -9 $PPID; sleep 300",
    "leaves a process behind": "env -i setsid sh -c 'sleep 300; : {folder}' & sleep 0.2",
    "reports garbage": '"{python}" -c "$GARBAGE"',
}
# Clusters only look whether there is a claim: whoever spoils it there harms nobody, and goes on.
LOCAL_ONLY = ("spoils its claim",)
# Forged, and its agent killed in that very moment: nobody can tell it from the truth any more. It
# lied of itself alone, and its processes are ended all the same.
MAY_BE_BELIEVED = ("says that it ended",)
HARMLESS_TO_ITSELF = ("leaves a process behind", "reports garbage")


def jobs_of(request: dict[str, Any]) -> list[Job]:
    """The jobs that a request describes: one, or the members of an array."""
    job, names = _job(request), ids_of(request)
    if names == [job.id]:
        return [job]
    return [replace(job, id=JobId(name), app=job.id, max_parallel=2) for name in names]


def ids_of(request: dict[str, Any]) -> list[str]:
    """What these are called: members as the service calls those of a tenant's array."""
    if not request["array"]:
        return [request["job"]]
    whole = f"{request['tenant']}:{request['job']}"
    return [f"{whole}.{number}" for number in range(request["array"])]


def _job(request: dict[str, Any]) -> Job:
    least, most, goal = request["min"], request["max"], request["goal"]
    harm = request["harm"]
    command = (sys.executable, "-S", "-E", *request["command"])
    if harm:
        script = HARM[harm].replace("{folder}", request["folder"])
        script = script.replace("{python}", sys.executable)
        command = ("sh", "-c", f'cd "$WEFT_ATTEMPT_DIR"; {script}')
    launch = Launch(
        command,
        workdir="/",
        env={"GARBAGE": GARBAGE} if harm else {},
        grace_s=1.0 if harm else 5.0,
        retries=1 if harm else 1000,
        backoff_s=0.1,
        processes=Processes.PER_GPU,
    )
    return Job(
        JobId(request["job"]),
        tenant=request["tenant"],
        demand=Demand(least, least, most, share=request["share"]),
        hints={"duration_s": goal * TICK_S, "iteration_s": 0.2, "gpu_util": 50.0},
        launch=launch,
    )
