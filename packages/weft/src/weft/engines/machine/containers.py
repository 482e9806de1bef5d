"""Lines for bash that put a job's processes into a container, run where the job runs. Pure.

They change the words in "$@" from a command to one that runs it in the image, by Apptainer or
Podman, whichever the node has, or else by a step of Slurm where Pyxis is installed. Processes see
the node's processes, network and shared memory, the job's folders at the same paths, and the
variables of the job; values are on no command line.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from shlex import quote

from weft.core.errors import InvalidConfig
from weft.core.model.job import Job
from weft.core.model.launch import Software, SoftwareKind

PROGRAMS = ("apptainer", "podman")
# What is the node's own: the image has its programs and libraries elsewhere.
OF_THE_NODE = (
    *("PATH", "HOME", "HOSTNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "TMPDIR"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"),
    *("CONTAINERS_CONF", "XDG_RUNTIME_DIR"),
)
ENTER = """\
weft_binds=("$PWD")
for weft_path in "${{WEFT_AGENT%/*}}" "${{WEFT_COORDINATOR%/*}}" "${{WEFT_CHECKPOINTS-}}"; do
  [[ $weft_path == /* && -d $weft_path ]] && weft_binds+=("$weft_path")
done
weft_binds+=({volumes})
if command -v apptainer >/dev/null; then
  weft_run=(apptainer exec --pwd "$PWD")
  [ -e /dev/nvidiactl ] && weft_run+=(--nv)
  for weft_path in "${{weft_binds[@]}}"; do weft_run+=(--bind "$weft_path"); done
  unset {unset}
  set -- "${{weft_run[@]}}" {apptainer} "$@"
elif command -v podman >/dev/null; then
  weft_run=(podman run --rm --pid host --ipc host --network host --workdir "$PWD")
  if [ -t 0 ]; then weft_run+=(--interactive --tty); else weft_run+=(--log-driver passthrough); fi
  [ -e /dev/nvidiactl ] && weft_run+=(--device nvidia.com/gpu=all)
  [ "$(id -u)" = 0 ] || weft_run+=(--userns keep-id)
  for weft_path in "${{weft_binds[@]}}"; do
    [[ $weft_path == *:* ]] || weft_path="$weft_path:$weft_path"
    weft_run+=(--volume "$weft_path")
  done
  while read -r weft_name; do
    case " {node} " in *" $weft_name "*) ;; *) weft_run+=(--env "$weft_name") ;; esac
  done < <(compgen -e)
  set -- "${{weft_run[@]}}" {podman} "$@"
elif [ -n "${{SLURM_JOB_ID-}}" ] && [[ $(srun --help 2>/dev/null) == *--container-image* ]]; then
  weft_mounts=
  for weft_path in "${{weft_binds[@]}}"; do
    [[ $weft_path == *:* ]] || weft_path="$weft_path:$weft_path"
    weft_mounts+=${{weft_mounts:+,}}$weft_path
  done
  weft_run=(srun "--jobid=$SLURM_JOB_ID" --overlap --nodes=1 --ntasks=1 --mpi=none --cpu-bind=none)
  weft_run+=("--nodelist=$SLURMD_NODENAME" --export=ALL --container-image={pyxis})
  weft_run+=("--container-mounts=$weft_mounts" "--container-workdir=$PWD")
  if [ -t 0 ]; then weft_run+=(--pty); fi
  export WEFT_VISIBLE=${{CUDA_VISIBLE_DEVICES-}}
  weft_keep='[ -z "$WEFT_VISIBLE" ] || export CUDA_VISIBLE_DEVICES="$WEFT_VISIBLE"; exec "$@"'
  set -- "${{weft_run[@]}}" sh -c "$weft_keep" sh "$@"
else
  echo 'neither apptainer nor podman nor Pyxis is installed here' >&2; exit 1
fi"""


def check_image(job: Job) -> None:
    """Raise InvalidConfig for a job in a container that this machine cannot start."""
    software = job.launch.software if job.launch else None
    if software is None or software.kind is not SoftwareKind.IMAGE:
        return
    refuse_named_volumes(job)
    if not any(map(shutil.which, PROGRAMS)):
        raise InvalidConfig(
            f"job {job.id!r}: environment.image is {software.name!r}, and this machine has "
            "neither apptainer nor podman",
            hint="install one of them, or use environment.venv, .conda or .uv",
        )


def refuse_named_volumes(job: Job) -> None:
    """Raise InvalidConfig for volumes that are no folders of a node."""
    software = job.launch.software if job.launch else None
    named = [volume for volume in software.volumes if volume[0] != "/"] if software else ()
    if named:
        raise InvalidConfig(
            f"job {job.id!r}: the volume {named[0]!r} is a claim or secret of Kubernetes",
            hint="name a folder of the nodes: /path or /path:/inside:ro",
        )


def enter_container(software: Software | None, named: Iterable[str] = ()) -> str:
    """Lines that put the command in "$@" into an image; `named` are variables the job sets."""
    if software is None or software.kind is not SoftwareKind.IMAGE:
        return ""
    name = software.name.removeprefix("docker://")
    is_file = name.startswith(("/", "./")) or "://" in name
    mine = set(named)
    node = [variable for variable in OF_THE_NODE if variable not in mine]
    return ENTER.format(
        volumes=" ".join(map(quote, software.volumes)),
        unset=" ".join(word for word in node if word not in ("PATH", "HOME", "PWD", "TMPDIR")),
        node=" ".join(node),
        apptainer=quote(name if is_file else f"docker://{name}"),
        podman=quote(name),
        pyxis=quote(_for_enroot(name)),
    )


def _for_enroot(name: str) -> str:
    """An image as Pyxis names it: `#` is between a registry and what is in it."""
    first, slash, rest = name.partition("/")
    is_registry = bool(slash) and first != "" and ("." in first or ":" in first)
    return f"{first}#{rest}" if is_registry and "://" not in name else name
